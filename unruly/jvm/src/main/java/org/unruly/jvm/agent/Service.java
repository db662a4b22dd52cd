package org.unruly.jvm.agent;

import io.netty.buffer.ByteBuf;
import io.netty.util.concurrent.FastThreadLocal;
import java.net.ProtocolException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

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

  Service(AgentTerms terms) {
    codec = terms.codec();
    wallOffsetNs = terms.wallOffsetNs();
    disk = terms.disk() == null ? null : new Disk(this, DiskRing.open(terms.disk(), terms.diskBytes()));
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
  boolean answer(ByteBuf request, Route route, ByteBuf into) throws ProtocolException {
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
}
