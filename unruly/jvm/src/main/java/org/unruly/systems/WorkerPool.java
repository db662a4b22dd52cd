package org.unruly.systems;

import java.util.ArrayDeque;

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

  /** Waiting requests: a ring of pairs, the number of a request and its bytes. */
  private long[] ring = new long[32];

  private int head;
  private int size;
  private int workers;

  WorkerPool(Callers callers, LineWriter lines) {
    this.callers = callers;
    this.lines = lines;
  }

  /** Has a worker send a request; does not wait for it. */
  synchronized void submit(long request, long bytes) {
    Worker worker = idle.pollLast();
    if (worker != null) {
      worker.assign(request, bytes);
    } else if (workers < WORKERS_MAX) {
      workers++;
      start(new Worker(this, callers, lines), request, bytes);
    } else {
      add(request, bytes);
    }
  }

  private static void start(Worker worker, long request, long bytes) {
    Thread thread = new Thread(worker, "worker");
    thread.setDaemon(true);
    worker.runBy(thread);
    worker.assign(request, bytes);
    thread.start();
  }

  private void add(long request, long bytes) {
    if (2 * size == ring.length) {
      long[] larger = new long[2 * ring.length];
      System.arraycopy(ring, head, larger, 0, ring.length - head);
      System.arraycopy(ring, 0, larger, ring.length - head, head);
      ring = larger;
      head = 0;
    }
    int tail = (head + 2 * size) % ring.length;
    ring[tail] = request;
    ring[tail + 1] = bytes;
    size++;
  }

  /**
   * Gives a worker the next request, or keeps it for one. A worker calls this before it writes its
   * result: the next request may follow at once, and must not start one more worker.
   */
  synchronized void release(Worker worker) {
    if (size == 0) {
      idle.addLast(worker);
      return;
    }
    worker.assign(ring[head], ring[head + 1]);
    head = (head + 2) % ring.length;
    size--;
  }

  /** Returns the number of workers. */
  synchronized int workers() {
    return workers;
  }
}
