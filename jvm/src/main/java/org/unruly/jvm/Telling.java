package org.unruly.jvm;

import org.unruly.jvm.foreign.ForeignRecord;
import org.unruly.jvm.foreign.Kind;
import org.unruly.jvm.foreign.Parent;

/** The records with which every verb begins and ends. */
final class Telling {
  private Telling() {}

  /** The first record. */
  static void hello(Parent parent, int port) {
    parent.tell(Kind.HELLO, ProcessHandle.current().pid(), port, ForeignRecord.VERSION);
  }

  /** The whole text to stderr, and as much of it as fits to the agent. */
  static void failure(Parent parent, Throwable thrown) {
    String text = thrown instanceof Problem ? thrown.getMessage() : "jvm: " + thrown;
    System.err.println(text);
    if (parent != null) {
      parent.tell(Kind.FAILURE, ForeignRecord.text(text));
    }
  }
}
