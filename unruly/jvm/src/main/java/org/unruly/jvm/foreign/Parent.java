package org.unruly.jvm.foreign;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.Problem;
import org.unruly.jvm.foreign.ForeignRecord.Kind;

/**
 * The agent that started this process, at the other end of a Unix-domain socket.
 *
 * <p>Records go through a ring and one daemon thread, so a measured thread never waits for the agent. When
 * the socket closes, the agent is gone and this process ends at once.
 */
public final class Parent implements AutoCloseable {
  /** At 5,000 samples a second the ring holds the records of more than a second. */
  private static final int CAPACITY = 8192;

  private static final int BATCH = 256;
  private static final long PAUSE_NS = 5_000_000;

  /** Timeout for a record that must not be dropped and for the final flush, ns. It exceeds any GC pause. */
  private static final long TIMEOUT_NS = 10_000_000_000L;

  private final SocketChannel channel;
  private final Runnable gone;
  private final RecordRing ring = new RecordRing(CAPACITY);
  private final BlockingQueue<Command> commands = new LinkedBlockingQueue<>();
  private final Thread sender = new Thread(this::send, "records");
  private volatile boolean closing;

  private Parent(SocketChannel channel, Runnable gone) {
    this.channel = channel;
    this.gone = gone;
  }

  /**
   * Connects to an agent.
   *
   * @param path path of the socket on which the agent listens
   * @param gone action when the socket closes
   */
  public static Parent connect(String path, Runnable gone) {
    SocketChannel channel;
    try {
      channel = SocketChannel.open(UnixDomainSocketAddress.of(Path.of(path)));
    } catch (IOException thrown) {
      throw new Problem("socket " + path, thrown.getMessage(), "an agent that listens there", "start it from `unruly agent`", thrown);
    }
    Parent parent = new Parent(channel, gone);
    Thread receiver = new Thread(parent::receive, "commands");
    receiver.setDaemon(true);
    receiver.start();
    parent.sender.setDaemon(true);
    parent.sender.start();
    return parent;
  }

  /** Returns the ring for the records of measured threads. */
  public RecordRing ring() {
    return ring;
  }

  /** Queues a record and waits up to the timeout for a free slot. Measured threads use {@link #ring} instead. */
  public void report(int kind, long... fields) {
    long untilNs = System.nanoTime() + TIMEOUT_NS;
    while (!ring.tryOffer(kind, fields, fields.length)) {
      if (System.nanoTime() > untilNs) {
        ring.offer(kind, fields, fields.length);
        return;
      }
      LockSupport.parkNanos(PAUSE_NS);
    }
  }

  /** Queues a command that this process sends to itself. */
  public void add(Command command) {
    commands.add(command);
  }

  /** Waits for a command and returns it, or null at a deadline of {@link System#nanoTime}. */
  public Command next(long untilNs) throws InterruptedException {
    return commands.poll(Math.max(0, untilNs - System.nanoTime()), TimeUnit.NANOSECONDS);
  }

  /** Waits for the next command and returns it. */
  public Command next() throws InterruptedException {
    return commands.take();
  }

  /** Sends the records left in the ring, then closes the socket. */
  @Override
  public void close() {
    closing = true;
    LockSupport.unpark(sender);
    try {
      TimeUnit.NANOSECONDS.timedJoin(sender, TIMEOUT_NS);
      channel.close();
    } catch (InterruptedException thrown) {
      Thread.currentThread().interrupt();
    } catch (IOException thrown) {
      // the process ends in any case
    }
  }

  private void send() {
    ByteBuffer batch = ByteBuffer.allocateDirect((BATCH + 1) * ForeignRecord.BYTES);
    try {
      while (true) {
        // read the flag before draining, so that records queued before close() are sent
        boolean last = closing;
        batch.clear().limit(BATCH * ForeignRecord.BYTES);
        int drained = ring.drain(batch);
        long dropped = ring.takeDropped();
        batch.limit(batch.capacity());
        if (dropped > 0) {
          ForeignRecord.write(batch, Kind.DROPPED, new long[] {dropped}, 0, 1);
        }
        batch.flip();
        while (batch.hasRemaining()) {
          channel.write(batch);
        }
        if (drained == 0 && last) {
          return;
        }
        if (drained == 0) {
          LockSupport.parkNanos(PAUSE_NS);
        }
      }
    } catch (IOException thrown) {
      leave();
    }
  }

  private void receive() {
    ByteBuffer buffer = ByteBuffer.allocateDirect(ForeignRecord.BYTES);
    try {
      while (channel.read(buffer) >= 0) {
        if (!buffer.hasRemaining()) {
          buffer.flip();
          commands.add(Command.of(ForeignRecord.read(buffer)));
          buffer.clear();
        }
      }
    } catch (IOException thrown) {
      // handled like the end of the socket
    } catch (Problem problem) {
      System.err.println(problem.getMessage());
    }
    leave();
  }

  private void leave() {
    if (!closing) {
      gone.run();
    }
  }

  /**
   * A command from the agent, or from a thread of this process that ended.
   *
   * @param kind {@link Kind#PEER}, {@link Kind#START}, {@link Kind#STOP} or {@link #FINISHED}
   * @param first the record's first field
   * @param second its second field
   * @param cause why the stream ended, or null when it ended well
   */
  public record Command(int kind, long first, long second, Throwable cause) {
    /** Kind of a thread that ended. No record has this kind. */
    public static final int FINISHED = 0;

    /** Returns the command in a record. */
    public static Command of(ForeignRecord record) {
      return new Command(record.kind(), record.fields()[0], record.fields()[1], null);
    }

    /** Returns the command that reports the end of a thread. */
    public static Command finished(Throwable cause) {
      return new Command(FINISHED, 0, 0, cause);
    }

    /** Returns the address in a {@link Kind#PEER} record. The port is 0 if the peer has none. */
    public InetSocketAddress peer() {
      return address(first, Math.max(0, second));
    }

    /** Converts an IPv4 address from its number in a record. */
    public static InetSocketAddress address(long number, long port) {
      byte[] address = ByteBuffer.allocate(Integer.BYTES).putInt((int) number).array();
      try {
        return new InetSocketAddress(InetAddress.getByAddress(address), (int) port);
      } catch (UnknownHostException thrown) {
        throw new IllegalStateException("four bytes are an address", thrown);
      }
    }
  }
}
