package org.unruly.systems;

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import org.agrona.DirectBuffer;
import org.agrona.collections.Int2ObjectHashMap;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;
import org.unruly.jvm.Options;
import org.unruly.jvm.protocol.AeronDriver;

/**
 * Aeron over UDP: one stream has the requests and another the replies. Both ends have a media
 * driver of their own.
 *
 * <p>The workers of a client share both streams. A message begins with the number of the worker's
 * connection and of its call. The worker that waits for a reply polls for all that wait: a single
 * one needs no other thread.
 */
final class AeronEcho implements EchoSystem {
  private static final int REQUESTS = 1;
  private static final int REPLIES = 2;
  private static final int HEAD = 2 * Integer.BYTES;
  private static final int FRAGMENTS = 10;

  /** Time for a reply to enter the stream, ns: a client that reads nothing must not stop others. */
  private static final long OFFER_NS = 1_000_000_000L;

  @Override
  public Set<String> keys() {
    return Set.of("host", "port", "reply-host", "reply-port");
  }

  @Override
  public void serve(Options options) {
    Aeron aeron = aeron("/dev/shm/unruly-echo-" + EchoSystem.port(options));
    Subscription requests = aeron.addSubscription(requests(options), REQUESTS);
    Publication replies = aeron.addPublication(replies(options), REPLIES);
    FragmentAssembler assembler =
        new FragmentAssembler((buffer, offset, length, header) -> {
          offer(replies, buffer, offset, length);
        });
    Thread thread =
        new Thread(
            () -> {
              IdleStrategy idle = idle();
              while (true) {
                idle.idle(requests.poll(assembler, FRAGMENTS));
              }
            },
            "echo");
    thread.setDaemon(true);
    thread.start();
  }

  private static void offer(Publication replies, DirectBuffer buffer, int offset, int length) {
    long untilNs = System.nanoTime() + OFFER_NS;
    IdleStrategy idle = idle();
    while (replies.offer(buffer, offset, length) < 0
        && replies.isConnected()
        && System.nanoTime() < untilNs) {
      idle.idle();
    }
  }

  private static String requests(Options options) {
    return channel(options.text("host"), EchoSystem.port(options));
  }

  private static String replies(Options options) {
    return channel(options.text("reply-host"), options.number("reply-port", 1, 65_535));
  }

  private static String channel(String host, long port) {
    return "aeron:udp?endpoint=" + host + ":" + port;
  }

  private static Aeron aeron(String directory) {
    AeronDriver.launch(directory);
    Aeron.Context context = new Aeron.Context().aeronDirectoryName(directory);
    return Aeron.connect(context.errorHandler(thrown -> System.err.println("aeron: " + thrown)));
  }

  /** Spins, then yields, then sleeps up to 100 us: hosts may have two cores only. */
  private static IdleStrategy idle() {
    long mostNs = TimeUnit.MICROSECONDS.toNanos(100);
    return new BackoffIdleStrategy(100, 100, TimeUnit.MICROSECONDS.toNanos(1), mostNs);
  }

  @Override
  public Client client(Options options, long timeoutNs) {
    Aeron aeron = aeron("/dev/shm/unruly-echo-client-" + ProcessHandle.current().pid());
    Subscription replies = aeron.addSubscription(replies(options), REPLIES);
    Publication requests = aeron.addPublication(requests(options), REQUESTS);
    return new AeronClient(requests, replies, timeoutNs);
  }

  private static final class AeronClient implements Client {
    private final Publication requests;
    private final Subscription replies;
    private final long timeoutNs;
    private final FragmentAssembler assembler = new FragmentAssembler(this::receive);

    /** The right to poll, and to use the map. */
    private final ReentrantLock polling = new ReentrantLock();

    private final Int2ObjectHashMap<AeronConnection> waiting = new Int2ObjectHashMap<>();
    private int connections;

    /** The time until which the first worker waits for the streams. */
    private final long startedNs = System.nanoTime() + START_NS;

    private AeronClient(Publication requests, Subscription replies, long timeoutNs) {
      this.requests = requests;
      this.replies = replies;
      this.timeoutNs = timeoutNs;
    }

    @Override
    public int maxBytes() {
      return requests.maxMessageLength() - HEAD;
    }

    @Override
    public Connection connect() throws Failure {
      IdleStrategy idle = idle();
      while (!requests.isConnected() || !replies.isConnected()) {
        if (System.nanoTime() >= startedNs) {
          throw new Failure(Failure.Kind.DISCONNECTED, "the streams are not connected");
        }
        idle.idle();
      }
      polling.lock();
      try {
        AeronConnection connection = new AeronConnection(this, ++connections);
        waiting.put(connections, connection);
        return connection;
      } finally {
        polling.unlock();
      }
    }

    private void remove(int connection) {
      polling.lock();
      try {
        waiting.remove(connection);
      } finally {
        polling.unlock();
      }
    }

    /** Polls if no other worker does; returns the number of fragments. */
    private int poll() {
      if (!polling.tryLock()) {
        return 0;
      }
      try {
        return replies.poll(assembler, FRAGMENTS);
      } finally {
        polling.unlock();
      }
    }

    private void receive(DirectBuffer buffer, int offset, int length, Object header) {
      if (length >= HEAD) {
        AeronConnection connection = waiting.get(buffer.getInt(offset));
        if (connection != null) {
          connection.receive(buffer, offset, length);
        }
      }
    }
  }

  private static final class AeronConnection extends Connection {
    private final AeronClient client;
    private final int connection;
    private final UnsafeBuffer head = new UnsafeBuffer(new byte[HEAD]);
    private final UnsafeBuffer body = new UnsafeBuffer(0, 0);
    private final IdleStrategy idle = idle();
    private byte[] echo = {};
    private int number;
    private int length;

    /** The call that waits, or 0: the worker that polls sets it, after the echo is there. */
    private volatile int expected;

    private AeronConnection(AeronClient client, int connection) {
      this.client = client;
      this.connection = connection;
    }

    @Override
    void call(byte[] payload) throws Failure {
      long untilNs = System.nanoTime() + client.timeoutNs;
      number = number == Integer.MAX_VALUE ? 1 : number + 1;
      head.putInt(0, connection);
      head.putInt(Integer.BYTES, number);
      body.wrap(payload);
      if (echo.length < payload.length) {
        echo = new byte[payload.length];
      }
      expected = number;
      idle.reset();
      while (client.requests.offer(head, 0, HEAD, body, 0, payload.length, null) < 0) {
        if (!client.requests.isConnected()) {
          throw new Failure(Failure.Kind.DISCONNECTED, "the stream of requests is not connected");
        }
        pause(untilNs, client.poll());
      }
      while (expected != 0) {
        pause(untilNs, client.poll());
      }
      keep(echo, 0, length);
    }

    private void pause(long untilNs, int worked) throws Failure {
      if (System.nanoTime() >= untilNs) {
        throw Failure.timeout(client.timeoutNs);
      }
      idle.idle(worked);
    }

    /** Copies the echo, as the buffer belongs to Aeron. */
    private void receive(DirectBuffer buffer, int offset, int bytes) {
      if (buffer.getInt(offset + Integer.BYTES) != expected || expected == 0) {
        return;
      }
      length = bytes - HEAD;
      if (echo.length < length) {
        echo = new byte[length];
      }
      buffer.getBytes(offset + HEAD, echo, 0, length);
      expected = 0;
    }

    @Override
    public void close() {
      client.remove(connection);
    }
  }
}
