package org.unruly.systems;

import java.util.ArrayDeque;
import org.unruly.apps.Trace;

/**
 * The workers of one client: one for each open request, kept and used again.
 *
 * <p>Calls block, so each needs a thread. Above {@link #WORKERS_MAX} open requests the others wait.
 * The worker that was busy last is the first to be used again: a client that has one open request
 * at a time uses one connection.
 */
final class WorkerPool {
  /** The most workers of a client. */
  static final int WORKERS_MAX = 256;

  private final Callers callers;
  private final LineWriter lines;
  private final ArrayDeque<Worker> idle = new ArrayDeque<>();

  private final ArrayDeque<Waiting> waiting = new ArrayDeque<>();
  private final long client;
  private int workers;

  /**
   * Creates a pool without workers.
   *
   * @param client the number of the client
   */
  WorkerPool(long client, Callers callers, LineWriter lines) {
    this.client = client;
    this.callers = callers;
    this.lines = lines;
  }

  /** A request without a worker. */
  private record Waiting(long request, long bytes, Trace trace) {}

  /** Returns the number of the client. */
  long client() {
    return client;
  }

  /** Has a worker send a request; does not wait for it. */
  synchronized void submit(long request, long bytes, Trace trace) {
    Worker worker = idle.pollLast();
    if (worker != null) {
      worker.assign(request, bytes, trace);
    } else if (workers < WORKERS_MAX) {
      workers++;
      start(new Worker(this, callers, lines), request, bytes, trace);
    } else {
      waiting.addLast(new Waiting(request, bytes, trace));
    }
  }

  private static void start(Worker worker, long request, long bytes, Trace trace) {
    Thread thread = new Thread(worker, "worker");
    thread.setDaemon(true);
    worker.runBy(thread);
    worker.assign(request, bytes, trace);
    thread.start();
  }

  /**
   * Gives a worker the next request, or keeps it for one. A worker calls this before it writes its
   * result: the next request may follow at once, and must not start one more worker.
   */
  synchronized void release(Worker worker) {
    Waiting next = waiting.pollFirst();
    if (next == null) {
      idle.addLast(worker);
    } else {
      worker.assign(next.request(), next.bytes(), next.trace());
    }
  }

  /** Returns the number of workers. */
  synchronized int workers() {
    return workers;
  }
}
