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
 * <p>Records go through a ring and one daemon thread, so that nothing that is measured ever waits for the agent. When
 * the socket ends, whoever held it is gone and this process ends at once.
 */
public final class Parent implements AutoCloseable {
  /** At 5,000 samples a second the ring holds the records of more than a second. */
  private static final int CAPACITY = 8192;

  private static final int BATCH = 256;
  private static final long PAUSE_NS = 5_000_000;

  /** A record that must not be dropped waits so long for room, and the last ones to be sent: through pauses of the world. */
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
   * @param path of the socket it listens at
   * @param gone what to do when the socket ends
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

  /** Where measuring threads put their records. */
  public RecordRing ring() {
    return ring;
  }

  /** Tells what must not be dropped: waits for room, though not for ever. Not for threads that are measured. */
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

  /** Adds a command of this process's own. */
  public void add(Command command) {
    commands.add(command);
  }

  /** The next command, or null when none came until then, by {@link System#nanoTime}. */
  public Command next(long untilNs) throws InterruptedException {
    return commands.poll(Math.max(0, untilNs - System.nanoTime()), TimeUnit.NANOSECONDS);
  }

  /** The next command, whenever it comes. */
  public Command next() throws InterruptedException {
    return commands.take();
  }

  /** Sends what is still in the ring, and leaves. */
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
      // we leave anyway
    }
  }

  private void send() {
    ByteBuffer batch = ByteBuffer.allocateDirect((BATCH + 1) * ForeignRecord.BYTES);
    try {
      while (true) {
        // asked before draining: what was put in before is then sent
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
      // the same as its end
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
   * What a run is told, by its agent or by its own stream.
   *
   * @param kind {@link Kind#PEER}, {@link Kind#START}, {@link Kind#STOP} or {@link #FINISHED}
   * @param first the record's first field
   * @param second its second field
   * @param cause why the stream ended, or null when it ended well
   */
  public record Command(int kind, long first, long second, Throwable cause) {
    /** The stream's own: it has ended. No record has this kind. */
    public static final int FINISHED = 0;

    /** The command of a record. */
    public static Command of(ForeignRecord record) {
      return new Command(record.kind(), record.fields()[0], record.fields()[1], null);
    }

    /** That the stream has ended. */
    public static Command finished(Throwable cause) {
      return new Command(FINISHED, 0, 0, cause);
    }

    /** The address that {@link Kind#PEER} tells; its port is 0 when the peer has none. */
    public InetSocketAddress peer() {
      return address(first, Math.max(0, second));
    }

    /** The address of a number, as records tell it. */
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
