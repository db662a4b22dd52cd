package org.unruly.systems;

import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.unruly.apps.Reply;
import org.unruly.apps.Trace;

/** Calls one replica, and the next one when that is gone or does not answer in time. */
final class PassiveCalls implements ReplicaCalls {
  private static final long PAUSE_NS = 1_000_000;

  private final Replicas shared;
  private final List<Replica.Link> links;
  private int first;
  private FailOver failOver;

  PassiveCalls(Replicas shared, List<Replica.Link> links) {
    this.shared = shared;
    this.links = links;
    this.first = shared.first();
  }

  @Override
  public byte[] call(byte[] request, Trace trace) throws Exception {
    failOver = null;
    int begun = first;
    long untilNs = System.nanoTime() + shared.timeoutNs();
    long detectedNs = 0;
    Exception failure = new Failure(Failure.Kind.DISCONNECTED, "no replica is connected");
    for (int tried = 0; ; tried++) {
      Replica.Link link = links.get(first);
      Connection connection = link.connection();
      long sentNs = System.nanoTime();
      if (connection != null) {
        try {
          byte[] reply = TracedCall.of(connection, request, trace, shared.spans());
          if (!Reply.isFailed(reply)) {
            note(begun, detectedNs, sentNs);
            return reply;
          }
          // the replica is there, and its database failed
          failure = new Failure(Failure.Kind.STORE, Reply.read(reply).words());
        } catch (Exception thrown) {
          failure = thrown;
          if (Failure.of(thrown).kind() == Failure.Kind.STORE) {
            throw thrown;
          }
          link.breakOff();
        }
      }
      if (detectedNs == 0) {
        detectedNs = System.nanoTime();
      }
      if (System.nanoTime() > untilNs) {
        throw failure;
      }
      first = (first + 1) % links.size();
      if (tried % links.size() == links.size() - 1) {
        LockSupport.parkNanos(PAUSE_NS);
      }
    }
  }

  /** Keeps the times of a call that another replica answered than the one it was sent to first. */
  private void note(int begun, long detectedNs, long sentNs) {
    if (first != begun) {
      failOver = new FailOver(detectedNs, sentNs, System.nanoTime());
      shared.prefer(first);
    }
  }

  @Override
  public FailOver failOver() {
    return failOver;
  }

  @Override
  public void close() {
    links.forEach(Replica.Link::close);
  }
}
