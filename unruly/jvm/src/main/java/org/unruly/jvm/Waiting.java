package org.unruly.jvm;

import org.unruly.jvm.foreign.Command;
import org.unruly.jvm.foreign.Kind;
import org.unruly.jvm.foreign.Parent;

/** Waiting of a run that has nothing to do itself. */
final class Waiting {
  private static final long LONG_NS = Long.MAX_VALUE / 4;

  private Waiting() {}

  /** Until it is stopped, or the end comes of which a start has told, or something breaks. */
  static void untilStopped(Parent parent) throws InterruptedException {
    long endNs = System.nanoTime() + LONG_NS;
    while (true) {
      Command command = parent.next(endNs);
      if (command == null || command.kind() == Kind.STOP) {
        return;
      } else if (command.kind() == Kind.START) {
        endNs = command.second();
      } else if (command.kind() == Command.FINISHED) {
        if (command.cause() instanceof Problem problem) {
          throw problem;
        }
        throw new IllegalStateException("a thread has ended", command.cause());
      }
    }
  }
}
