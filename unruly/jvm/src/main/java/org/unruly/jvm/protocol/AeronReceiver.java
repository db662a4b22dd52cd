package org.unruly.jvm.protocol;

import io.aeron.FragmentAssembler;
import io.aeron.Subscription;
import java.io.EOFException;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.locks.LockSupport;
import org.unruly.jvm.protocol.AeronDriver.AeronClient;
import org.unruly.jvm.stream.Endpoint.Receiver;
import org.unruly.jvm.stream.Header;
import org.unruly.jvm.stream.Intake;
import org.unruly.jvm.stream.StreamConfig;

/** Aeron over UDP: polls for fragments, and puts them together. */
final class AeronReceiver implements Receiver {
  private static final int FRAGMENTS = 64;
  private static final long LEAVING_NS = 3_000_000_000L;
  private static final long LEAVING_STEP_NS = 1_000_000;

  private final AeronClient client;
  private final Subscription subscription;
  private final String endpoint;
  private volatile boolean closed;

  AeronReceiver(StreamConfig config) throws IOException {
    client = new AeronClient(config);
    subscription = client.aeron().addSubscription("aeron:udp?endpoint=" + config.listenText(), AeronClient.STREAM);
    long untilNs = System.nanoTime() + AeronClient.CONNECT_NS;
    if (!AeronClient.await(() -> subscription.resolvedEndpoint() != null, untilNs)) {
      client.close();
      throw new IOException("the media driver does not bind it");
    }
    endpoint = subscription.resolvedEndpoint();
  }

  @Override
  public int port() {
    return Integer.parseInt(endpoint.substring(endpoint.lastIndexOf(':') + 1));
  }

  @Override
  public int meet(InetSocketAddress peer) {
    return 0;
  }

  @Override
  public void receive(Intake intake) throws IOException {
    ByteBuffer head = ByteBuffer.allocate(Header.BYTES);
    FragmentAssembler assembler =
        new FragmentAssembler(
            (buffer, offset, length, header) -> {
              if (length >= Header.BYTES) {
                // only the head is looked at, and where a message lies in memory differs
                buffer.getBytes(offset, head, 0, Header.BYTES);
                intake.take(head, 0, length);
              }
            });
    boolean connected = false;
    while (!intake.isOver() && !closed) {
      if (subscription.poll(assembler, FRAGMENTS) == 0) {
        if (connected && !subscription.isConnected()) {
          throw new EOFException("the writer left without telling the end");
        }
        connected |= subscription.isConnected();
        Thread.yield();
      }
    }
    leaveGently();
  }

  /**
   * Waits until this driver has reported the end to the writer's, which would otherwise wait for seconds; then the
   * image is gone.
   */
  private void leaveGently() {
    long untilNs = System.nanoTime() + LEAVING_NS;
    while (!closed && subscription.imageCount() > 0 && System.nanoTime() < untilNs) {
      LockSupport.parkNanos(LEAVING_STEP_NS);
    }
  }

  @Override
  public void wake() {
    closed = true;
  }

  @Override
  public void close() {
    closed = true;
    client.close();
  }
}
