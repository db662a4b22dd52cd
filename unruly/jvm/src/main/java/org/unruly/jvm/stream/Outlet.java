package org.unruly.jvm.stream;

import java.io.IOException;
import java.nio.ByteBuffer;

/** The writer's end of a stream. */
public interface Outlet extends End {
  /** The message: its writer changes it in place, then has it sent. */
  ByteBuffer message();

  /** Sends the message; waits as the protocol's back-pressure has it wait. */
  void send() throws IOException;

  /** How often the end is told: more than once where messages may be lost. */
  default int endings() {
    return 1;
  }

  /** Waits until what was sent is safe without this end, as far as the protocol can tell, but not beyond a time. */
  default void settle(long untilNs) throws IOException {}
}
