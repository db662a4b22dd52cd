package org.unruly.jvm.agent;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * The scheduled and the open requests to one peer. The queue forgets requests older than the timeout, so it stays
 * bounded. It uses neither clock nor socket.
 */
final class RequestQueue {
  private final long timeoutNs;
  private final PriorityQueue<Request> waiting =
      new PriorityQueue<>(Comparator.comparingLong(Request::intendedNs).thenComparingLong(Request::ticket));

  /** Scheduled times by ticket, in the order of sending, ns. */
  private final Map<Long, Long> open = new LinkedHashMap<>();

  RequestQueue(long timeoutNs) {
    this.timeoutNs = timeoutNs;
  }

  /** Adds a scheduled request. */
  void add(Request ask, long nowNs) {
    forget(nowNs);
    waiting.add(ask);
  }

  /** Returns the scheduled time of the next request, or {@code Long.MAX_VALUE} if none waits. */
  long nextNs() {
    return waiting.isEmpty() ? Long.MAX_VALUE : waiting.peek().intendedNs();
  }

  /** Removes and returns the next request if its scheduled time has passed, otherwise null. */
  Request take(long nowNs) {
    forget(nowNs);
    return nextNs() <= nowNs ? waiting.poll() : null;
  }

  /** Records that a request was sent. */
  void opened(Request ask) {
    open.put(ask.ticket(), ask.intendedNs());
  }

  /** Records that a request was answered or failed. */
  void ended(long ticket) {
    open.remove(ticket);
  }

  /** Ends every open request and every request whose scheduled time has passed. Returns their tickets. */
  List<Long> endAll(long nowNs) {
    forget(nowNs);
    List<Long> tickets = new ArrayList<>(open.keySet());
    open.clear();
    for (Request due = take(nowNs); due != null; due = take(nowNs)) {
      tickets.add(due.ticket());
    }
    return tickets;
  }

  /** Returns the number of scheduled and open requests. */
  int size() {
    return waiting.size() + open.size();
  }

  private void forget(long nowNs) {
    long oldestNs = nowNs - timeoutNs;
    while (nextNs() < oldestNs) {
      waiting.poll();
    }
    Iterator<Long> intendedNs = open.values().iterator();
    while (intendedNs.hasNext() && intendedNs.next() < oldestNs) {
      intendedNs.remove();
    }
  }

  /**
   * A request that the agent scheduled.
   *
   * @param ticket number of the request on the wire
   * @param intendedNs scheduled time by CLOCK_MONOTONIC, ns
   * @param flags flags of the request on the wire
   */
  record Request(long ticket, long intendedNs, int flags) {}
}
