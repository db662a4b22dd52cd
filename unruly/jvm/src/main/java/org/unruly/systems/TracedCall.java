package org.unruly.systems;

import org.unruly.apps.Request;
import org.unruly.apps.Spans;
import org.unruly.apps.Trace;

/** One attempt of a call, with its span. */
final class TracedCall {
  private TracedCall() {}

  /** Returns the reply. The server's span stands below the span of this attempt. */
  static byte[] of(Connection connection, byte[] request, Trace trace, Spans spans)
      throws Exception {
    if (!trace.isWanted()) {
      connection.call(request);
      return connection.reply();
    }
    long span = Spans.id();
    byte[] traced = Request.of(request, new Trace(trace.high(), trace.low(), span));
    long startedNs = System.nanoTime();
    boolean failed = true;
    try {
      connection.call(traced);
      failed = false;
      return connection.reply();
    } finally {
      spans.add(trace, span, "call", Spans.Kind.CLIENT, startedNs, failed);
    }
  }
}
