package org.unruly.systems;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import org.unruly.apps.Spans;
import org.unruly.apps.Trace;

/**
 * Calls all replicas at once, and takes the first reply. The database does the request once: the
 * replica that comes second finds the result.
 *
 * <p>Each replica has a thread of its own. One that is slow skips the requests that the others have
 * answered meanwhile.
 */
final class ActiveCalls implements ReplicaCalls {
  private final Replicas shared;
  private final long timeoutNs;
  private final Spans spans;
  private final List<Sender> senders;

  ActiveCalls(Replicas shared, List<Replicas.Link> links, long timeoutNs, Spans spans) {
    this.shared = shared;
    this.timeoutNs = timeoutNs;
    this.spans = spans;
    senders = links.stream().map(Sender::new).toList();
    senders.forEach(Sender::start);
  }

  @Override
  public byte[] call(byte[] request, Trace trace) throws Exception {
    Attempt attempt = new Attempt(request, trace, new AtomicInteger(senders.size()));
    senders.forEach(sender -> sender.send(attempt));
    try {
      return attempt.reply.get(timeoutNs, TimeUnit.NANOSECONDS);
    } catch (TimeoutException thrown) {
      throw Failure.timeout(timeoutNs);
    } catch (ExecutionException thrown) {
      throw Failure.of(thrown.getCause());
    }
  }

  /** Returns null: a replica that is gone delays no call. */
  @Override
  public FailOver failOver() {
    return null;
  }

  @Override
  public void close() {
    senders.forEach(Sender::close);
  }

  /** A request to all replicas; {@code left} counts those that may still answer. */
  private record Attempt(
      byte[] request, Trace trace, AtomicInteger left, CompletableFuture<byte[]> reply) {
    private Attempt(byte[] request, Trace trace, AtomicInteger left) {
      this(request, trace, left, new CompletableFuture<>());
    }

    private void failed(Exception thrown) {
      if (left.decrementAndGet() == 0) {
        reply.completeExceptionally(thrown);
      }
    }
  }

  private final class Sender implements Runnable {
    private final Replicas.Link link;
    private final AtomicReference<Attempt> next = new AtomicReference<>();
    private final Thread thread = new Thread(this, "replica");
    private volatile boolean closed;

    private Sender(Replicas.Link link) {
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
        } else {
          send(attempt, link.connection());
        }
      }
    }

    private void send(Attempt attempt, Connection connection) {
      if (connection == null) {
        attempt.failed(new Failure(Failure.Kind.DISCONNECTED, "no replica is connected"));
        return;
      }
      try {
        attempt.reply.complete(TracedCall.of(connection, attempt.request, attempt.trace, spans));
      } catch (Exception thrown) {
        if (Failure.of(thrown).kind() != Failure.Kind.STORE) {
          link.drop();
          shared.repair(link);
        }
        attempt.failed(thrown);
      }
    }
  }
}
