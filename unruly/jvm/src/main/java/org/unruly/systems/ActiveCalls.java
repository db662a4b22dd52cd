package org.unruly.systems;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.unruly.apps.Reply;
import org.unruly.apps.Trace;

/**
 * Calls all replicas at once, and takes the first reply. The database does the request once: the
 * replica that comes second finds the result.
 *
 * <p>Each replica has a thread of its own, which sends a request again after a failure, until a
 * replica has answered it.
 */
final class ActiveCalls implements ReplicaCalls {
  private static final long PAUSE_NS = 1_000_000;

  private final Replicas shared;
  private final List<Sender> senders;

  ActiveCalls(Replicas shared, List<Replica.Link> links) {
    this.shared = shared;
    senders = links.stream().map(Sender::new).toList();
    senders.forEach(Sender::start);
  }

  @Override
  public byte[] call(byte[] request, Trace trace) throws Exception {
    Attempt attempt = new Attempt(request, trace);
    senders.forEach(sender -> sender.send(attempt));
    try {
      return attempt.reply.get(shared.timeoutNs(), TimeUnit.NANOSECONDS);
    } catch (TimeoutException thrown) {
      // the senders give it up
      attempt.reply.cancel(false);
      Failure failure = attempt.failure;
      throw failure == null ? Failure.timeout(shared.timeoutNs()) : failure;
    } catch (ExecutionException thrown) {
      throw Failure.of(thrown.getCause());
    }
  }

  /** Returns null: the other replica has the request already when one is gone. */
  @Override
  public FailOver failOver() {
    return null;
  }

  @Override
  public void close() {
    senders.forEach(Sender::close);
  }

  /** A request to all replicas. */
  private static final class Attempt {
    private final byte[] request;
    private final Trace trace;
    private final CompletableFuture<byte[]> reply = new CompletableFuture<>();
    private volatile Failure failure;

    private Attempt(byte[] request, Trace trace) {
      this.request = request;
      this.trace = trace;
    }
  }

  private final class Sender implements Runnable {
    private final Replica.Link link;
    private final AtomicReference<Attempt> next = new AtomicReference<>();
    private final Thread thread = new Thread(this, "sender");
    private volatile boolean closed;

    private Sender(Replica.Link link) {
      this.link = link;
      thread.setDaemon(true);
    }

    private void start() {
      thread.start();
    }

    private void send(Attempt attempt) {
      next.set(attempt);
      LockSupport.unpark(thread);
    }

    private void close() {
      closed = true;
      link.close();
      LockSupport.unpark(thread);
    }

    @Override
    public void run() {
      while (!closed) {
        Attempt attempt = next.getAndSet(null);
        if (attempt == null) {
          LockSupport.park(this);
          continue;
        }
        while (!closed && !attempt.reply.isDone() && !tried(attempt)) {
          LockSupport.parkNanos(this, PAUSE_NS);
        }
      }
    }

    /** Makes one attempt; returns true if it has an end that no other attempt would change. */
    private boolean tried(Attempt attempt) {
      Connection connection = link.connection();
      if (connection == null) {
        return false;
      }
      try {
        byte[] reply = TracedCall.of(connection, attempt.request, attempt.trace, shared.spans());
        if (Reply.isFailed(reply)) {
          attempt.failure = new Failure(Failure.Kind.STORE, Reply.read(reply).words());
          return false;
        }
        return attempt.reply.complete(reply) || attempt.reply.isDone();
      } catch (Exception thrown) {
        Failure failure = Failure.of(thrown);
        attempt.failure = failure;
        if (failure.kind() == Failure.Kind.STORE) {
          return attempt.reply.completeExceptionally(failure) || attempt.reply.isDone();
        }
        link.breakOff();
        return false;
      }
    }
  }
}
