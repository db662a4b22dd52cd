package org.unruly.jvm.protocol;

import java.io.Closeable;
import java.io.IOException;

/** Closing what is not needed any more. */
final class Closing {
  private Closing() {}

  /** Closes; what goes wrong then harms no one. */
  static void quietly(Closeable open) {
    try {
      if (open != null) {
        open.close();
      }
    } catch (IOException thrown) {
      // it is closed all the same
    }
  }
}
