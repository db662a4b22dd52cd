package org.unruly.jvm.agent;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;

/**
 * What is to be asked of a peer, and what was asked and is open. What is older than the patience is forgotten, so that
 * neither grows without end. Sans clock and sans socket.
 */
final class RequestQueue {
  private final long timeoutNs;
  private final PriorityQueue<Request> waiting =
      new PriorityQueue<>(Comparator.comparingLong(Request::intendedNs).thenComparingLong(Request::ticket));

  /** Intended times by ticket, in the order of asking. */
  private final Map<Long, Long> open = new LinkedHashMap<>();

  RequestQueue(long timeoutNs) {
    this.timeoutNs = timeoutNs;
  }

  /** It waits for its time. */
  void add(Request ask, long nowNs) {
    forget(nowNs);
    waiting.add(ask);
  }

  /** When the next one is due; at the end of time when none waits. */
  long nextNs() {
    return waiting.isEmpty() ? Long.MAX_VALUE : waiting.peek().intendedNs();
  }

  /** Takes the next one whose time has come, or null. */
  Request take(long nowNs) {
    forget(nowNs);
    return nextNs() <= nowNs ? waiting.poll() : null;
  }

  /** It has been asked. */
  void opened(Request ask) {
    open.put(ask.ticket(), ask.intendedNs());
  }

  /** It was answered, or has failed. */
  void ended(long ticket) {
    open.remove(ticket);
  }

  /** Ends all that are open, and all whose time has come. */
  List<Long> endAll(long nowNs) {
    forget(nowNs);
    List<Long> tickets = new ArrayList<>(open.keySet());
    open.clear();
    for (Request due = take(nowNs); due != null; due = take(nowNs)) {
      tickets.add(due.ticket());
    }
    return tickets;
  }

  /** How many are remembered. */
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
   * What the agent wants asked.
   *
   * @param ticket the request's number on the wire
   * @param intendedNs when, CLOCK_MONOTONIC
   * @param flags of the wire
   */
  record Request(long ticket, long intendedNs, int flags) {}
}
