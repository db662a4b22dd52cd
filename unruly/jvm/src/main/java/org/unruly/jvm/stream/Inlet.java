package org.unruly.jvm.stream;

import java.io.IOException;

/** The reader's end of a stream. */
public interface Inlet extends End {
  /** Receives until the intake is over, or this end is closed. */
  void receive(Intake intake) throws IOException;
}
