package org.unruly.jvm.foreign;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;

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
