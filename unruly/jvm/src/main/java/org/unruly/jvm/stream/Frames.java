package org.unruly.jvm.stream;

import java.nio.ByteBuffer;

/** Cuts a stream of bytes into messages of the one size that all have. */
public final class Frames {
  private final Intake intake;
  private boolean begun;

  /** Frames of a connection, for an intake. */
  public Frames(Intake intake) {
    this.intake = intake;
  }

  /**
   * Takes the whole messages between position 0 and the buffer's position, and keeps the rest for the next read.
   *
   * @return false when the connection's first message is none of this stream: someone else has connected
   */
  public boolean take(ByteBuffer buffer) {
    int messageBytes = intake.messageBytes();
    buffer.flip();
    int at = 0;
    while (buffer.limit() - at >= messageBytes && !intake.isOver()) {
      boolean ours = intake.take(buffer, at, messageBytes);
      if (!begun && !ours) {
        return false;
      }
      begun = true;
      at += messageBytes;
    }
    buffer.position(at);
    buffer.compact();
    return true;
  }

  /** Whether a message of this stream has come. */
  public boolean begun() {
    return begun;
  }

  /** Room for reads: many messages at once, and always a whole one. */
  public static int roomBytes(int messageBytes) {
    return Math.max(256 << 10, 2 * messageBytes);
  }
}
