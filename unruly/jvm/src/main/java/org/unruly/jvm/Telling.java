package org.unruly.jvm;

import java.util.List;
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

  /** The whole text to stderr; to the agent in as many records as it needs, of which the last says that it is over. */
  static void failure(Parent parent, Throwable thrown) {
    String text = thrown instanceof Problem ? thrown.getMessage() : "jvm: " + thrown;
    System.err.println(text);
    if (parent == null) {
      return;
    }
    List<long[]> parts = ForeignRecord.texts(text);
    int last = parts.size() - 1;
    parts.subList(0, last).forEach(part -> parent.tell(Kind.WORDS, part));
    parent.tell(Kind.FAILURE, parts.get(last));
  }
}
