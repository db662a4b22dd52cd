package org.unruly.systems;

import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.unruly.apps.Spans;
import org.unruly.apps.Trace;

/** Calls one replica, and the next one when that is gone or does not answer in time. */
final class PassiveCalls implements ReplicaCalls {
  private static final long PAUSE_NS = 1_000_000;

  private final Replicas shared;
  private final List<Replicas.Link> links;
  private final long timeoutNs;
  private final Spans spans;
  private int first;
  private FailOver failOver;

  PassiveCalls(Replicas shared, List<Replicas.Link> links, long timeoutNs, Spans spans) {
    this.shared = shared;
    this.links = links;
    this.timeoutNs = timeoutNs;
    this.spans = spans;
  }

  @Override
  public byte[] call(byte[] request, Trace trace) throws Exception {
    failOver = null;
    long startedNs = System.nanoTime();
    long detectedNs = 0;
    Exception failure = null;
    for (int tried = 0; ; tried++) {
      Replicas.Link link = links.get(first);
      Connection connection = link.connection();
      long sentNs = System.nanoTime();
      if (connection != null) {
        try {
          byte[] reply = TracedCall.of(connection, request, trace, spans);
          if (detectedNs != 0) {
            failOver = new FailOver(detectedNs, sentNs, System.nanoTime());
          }
          return reply;
        } catch (Exception thrown) {
          failure = thrown;
          if (Failure.of(thrown).kind() == Failure.Kind.STORE) {
            throw thrown;
          }
          link.drop();
          shared.repair(link);
        }
      }
      if (detectedNs == 0) {
        detectedNs = System.nanoTime();
      }
      if (System.nanoTime() - startedNs > timeoutNs) {
        throw failure == null
            ? new Failure(Failure.Kind.DISCONNECTED, "no replica is connected")
            : failure;
      }
      first = (first + 1) % links.size();
      if (tried % links.size() == links.size() - 1) {
        LockSupport.parkNanos(PAUSE_NS);
      }
    }
  }

  @Override
  public FailOver failOver() {
    return failOver;
  }

  @Override
  public void close() {
    links.forEach(Replicas.Link::close);
  }
}
