package org.unruly.jvm.protocol;

import java.io.DataOutput;
import java.io.IOException;
import org.jgroups.BytesMessage;
import org.jgroups.Message;

/**
 * A message with a head of its own and a body that all share; it arrives as any message of bytes does.
 *
 * <p>The group keeps each message until all have it: what it keeps outlives young collections, and a body each would be
 * copied in all of them.
 */
final class HeadedMessage extends BytesMessage {
  private final byte[] whole;

  /**
   * A message to all.
   *
   * @param head its first bytes, which nobody changes any more
   * @param whole its length, and its bytes after the head, which nobody changes either
   */
  HeadedMessage(byte[] head, byte[] whole) {
    super(null, head);
    this.whole = whole;
  }

  @Override
  public int getLength() {
    return whole.length;
  }

  /** The whole of it, for who cuts it into fragments. */
  @Override
  public byte[] getArray() {
    byte[] copy = whole.clone();
    System.arraycopy(array, 0, copy, 0, array.length);
    return copy;
  }

  /** A copy goes to one member that has missed it: it is whole. */
  @Override
  protected Message copyPayload(Message copy) {
    return copy.setArray(getArray(), 0, whole.length);
  }

  @Override
  protected int sizeOfPayload() {
    return super.sizeOfPayload() - array.length + whole.length;
  }

  @Override
  public void writePayload(DataOutput out) throws IOException {
    out.writeInt(whole.length);
    out.write(array);
    out.write(whole, array.length, whole.length - array.length);
  }
}
