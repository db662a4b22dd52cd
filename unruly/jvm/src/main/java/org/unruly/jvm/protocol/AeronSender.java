package org.unruly.jvm.protocol;

import io.aeron.AeronCounters;
import io.aeron.Publication;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.concurrent.locks.LockSupport;
import org.agrona.concurrent.UnsafeBuffer;
import org.agrona.concurrent.status.CountersReader;
import org.unruly.jvm.Problem;
import org.unruly.jvm.protocol.AeronDriver.AeronClient;
import org.unruly.jvm.stream.Endpoint.Sender;
import org.unruly.jvm.stream.StreamConfig;

/** Aeron over UDP: offers each message until there is room for it. */
final class AeronSender implements Sender {
  private static final long SETTLING_NS = 1_000_000;

  private final AeronClient client;
  private final ByteBuffer message;
  private final UnsafeBuffer offered;
  private Publication publication;
  private volatile boolean closed;

  AeronSender(StreamConfig config) {
    client = new AeronClient(config);
    message = ByteBuffer.allocateDirect(config.messageBytes());
    offered = new UnsafeBuffer(message);
  }

  @Override
  public int port() {
    return -1;
  }

  @Override
  public int meet(InetSocketAddress peer) throws IOException {
    String endpoint = peer.getAddress().getHostAddress() + ":" + peer.getPort();
    publication = client.aeron().addPublication("aeron:udp?endpoint=" + endpoint, AeronClient.STREAM);
    if (message.capacity() > publication.maxMessageLength()) {
      String wrong = "message is " + message.capacity() + " bytes";
      throw new Problem("aeron", wrong, "at most " + publication.maxMessageLength(), "message=" + publication.maxMessageLength());
    }
    if (!AeronClient.await(() -> publication.isConnected() || closed, System.nanoTime() + AeronClient.CONNECT_NS)) {
      throw new IOException("no subscription answers");
    }
    return 2;
  }

  @Override
  public ByteBuffer message() {
    return message;
  }

  @Override
  public void send() throws IOException {
    while (true) {
      if (closed) {
        throw new ClosedChannelException();
      }
      long position = publication.offer(offered);
      if (position > 0) {
        return;
      }
      if (position == Publication.BACK_PRESSURED || position == Publication.ADMIN_ACTION) {
        Thread.yield();
      } else if (position == Publication.NOT_CONNECTED) {
        throw new IOException("the reader is not connected any more");
      } else {
        throw new IOException("the publication is closed, or has reached its greatest position");
      }
    }
  }

  /**
   * Waits while the driver sends the offered messages, and repeats lost ones, until the reader's driver has reported
   * that it has all. The driver then frees the publication and its counters.
   */
  @Override
  public void settle(long untilNs) {
    CountersReader counters = client.aeron().countersReader();
    long registration = publication.originalRegistrationId();
    publication.close();
    while (!closed && System.nanoTime() < untilNs && isAllocated(counters, registration)) {
      LockSupport.parkNanos(SETTLING_NS);
    }
  }

  private static boolean isAllocated(CountersReader counters, long registration) {
    int counter = counters.findByTypeIdAndRegistrationId(AeronCounters.DRIVER_SENDER_POSITION_TYPE_ID, registration);
    return counter != CountersReader.NULL_COUNTER_ID;
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
