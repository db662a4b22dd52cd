package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.socket.DatagramPacket;
import io.netty.util.concurrent.FastThreadLocal;
import java.net.InetSocketAddress;
import java.net.ProtocolException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import org.unruly.jvm.agent.Codec.Head;
import org.unruly.jvm.agent.Codec.Stamps;
import org.unruly.jvm.agent.Disk.DiskRing;

/** What a server does with a whole request, whatever brought it. */
final class Service implements AutoCloseable {
  private final Codec codec;
  private final long wallOffsetNs;
  private final Disk disk;
  private final FastThreadLocal<Hash> hashes = new FastThreadLocal<>() {
    @Override
    protected Hash initialValue() throws NoSuchAlgorithmException {
      return new Hash();
    }
  };

  Service(AgentConfig config) {
    codec = config.codec();
    wallOffsetNs = config.wallOffsetNs();
    disk = config.disk() == null ? null : new Disk(this, DiskRing.open(config.disk(), config.diskBytes()));
  }

  Codec codec() {
    return codec;
  }

  /**
   * Handles a request: appends its reply, or hands it to the disk, which sends it on the route.
   *
   * @param request all its bytes
   * @return whether the reply was appended
   */
  boolean answer(ByteBuf request, ReplyRoute route, ByteBuf into) throws ProtocolException {
    long receivedNs = wallNs();
    Head head = Head.of(request);
    if (head.asksFor(Head.HASH)) {
      hashes.get().take(request);
    }
    if (!head.asksFor(Head.DISK)) {
      writeReply(into, head, receivedNs);
      return true;
    }
    if (disk == null) {
      throw new ProtocolException("this server has no disk file");
    }
    if (!disk.offer(route, head, receivedNs)) {
      throw new ProtocolException("too many replies wait for the disk");
    }
    return false;
  }

  /** Appends a reply that goes now. The kernel's stamps are not asked for. */
  void writeReply(ByteBuf into, Head head, long receivedNs) {
    codec.writeReply(into, head, new Stamps(0, receivedNs, wallNs()));
  }

  @Override
  public void close() {
    if (disk != null) {
      disk.close();
    }
  }

  private long wallNs() {
    return System.nanoTime() + wallOffsetNs;
  }

  /** The hash of one event loop. */
  private static final class Hash {
    private final MessageDigest digest = MessageDigest.getInstance("SHA-256");

    /** Nobody reads it; but it is there for who might, so that the compiler cannot leave the work out. */
    private byte[] last;

    private Hash() throws NoSuchAlgorithmException {}

    private void take(ByteBuf message) {
      digest.update(message.nioBuffer());
      last = digest.digest();
    }
  }

  /**
   * Where a reply goes.
   *
   * @param channel a connection, or the socket of the datagrams
   * @param to whom a datagram goes; null on a connection
   */
  record ReplyRoute(Channel channel, InetSocketAddress to) {
    /** Sends a whole reply; on the channel's event loop. */
    void send(ByteBuf reply) {
      if (to == null) {
        channel.writeAndFlush(reply);
      } else if (channel.isWritable()) {
        channel.writeAndFlush(new DatagramPacket(reply, to));
      } else {
        // a datagram that does not go is lost, as on any network
        reply.release();
      }
    }
  }
}
