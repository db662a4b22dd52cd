package org.unruly.jvm;

import java.util.List;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Parent.Command;
import org.unruly.jvm.foreign.Parent;

/** The records that every verb sends at its start and end, and the wait between them. */
final class Session {
  private static final long LONG_NS = Long.MAX_VALUE / 4;

  private Session() {}

  /** Sends the first record. */
  static void hello(Parent parent, int port) {
    parent.report(Kind.HELLO, ProcessHandle.current().pid(), port, ForeignRecord.VERSION);
  }

  /** Prints the error to stderr and sends it to the agent in one or more records. The last one has the kind FAILURE. */
  static void failure(Parent parent, Throwable thrown) {
    String text = thrown instanceof Problem ? thrown.getMessage() : "jvm: " + thrown;
    System.err.println(text);
    if (parent == null) {
      return;
    }
    List<long[]> parts = ForeignRecord.texts(text);
    int last = parts.size() - 1;
    parts.subList(0, last).forEach(part -> parent.report(Kind.WORDS, part));
    parent.report(Kind.FAILURE, parts.get(last));
  }

  /** Waits for a stop command or for the end time of a start command. Throws the failure of any thread that breaks. */
  static void awaitStop(Parent parent) throws InterruptedException {
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
