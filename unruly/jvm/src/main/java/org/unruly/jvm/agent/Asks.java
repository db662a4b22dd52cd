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
final class Asks {
  private final long patienceNs;
  private final PriorityQueue<Ask> waiting =
      new PriorityQueue<>(Comparator.comparingLong(Ask::intendedNs).thenComparingLong(Ask::ticket));

  /** Intended times by ticket, in the order of asking. */
  private final Map<Long, Long> open = new LinkedHashMap<>();

  Asks(long patienceNs) {
    this.patienceNs = patienceNs;
  }

  /** It waits for its time. */
  void add(Ask ask, long nowNs) {
    forget(nowNs);
    waiting.add(ask);
  }

  /** When the next one is due; at the end of time when none waits. */
  long nextNs() {
    return waiting.isEmpty() ? Long.MAX_VALUE : waiting.peek().intendedNs();
  }

  /** Takes the next one whose time has come, or null. */
  Ask take(long nowNs) {
    forget(nowNs);
    return nextNs() <= nowNs ? waiting.poll() : null;
  }

  /** It has been asked. */
  void opened(Ask ask) {
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
    for (Ask due = take(nowNs); due != null; due = take(nowNs)) {
      tickets.add(due.ticket());
    }
    return tickets;
  }

  /** How many are remembered. */
  int size() {
    return waiting.size() + open.size();
  }

  private void forget(long nowNs) {
    long oldestNs = nowNs - patienceNs;
    while (nextNs() < oldestNs) {
      waiting.poll();
    }
    Iterator<Long> intendedNs = open.values().iterator();
    while (intendedNs.hasNext() && intendedNs.next() < oldestNs) {
      intendedNs.remove();
    }
  }
}
