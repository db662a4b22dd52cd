package org.unruly.jvm;

import java.util.Set;
import org.unruly.jvm.agent.AgentTerms;
import org.unruly.jvm.agent.Asking;
import org.unruly.jvm.agent.Limits;
import org.unruly.jvm.agent.Loops;
import org.unruly.jvm.agent.Server;
import org.unruly.jvm.collector.Load;
import org.unruly.jvm.collector.Workload;
import org.unruly.jvm.foreign.Kind;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.watch.Watch;

/** A member of the group RPC: answers requests, and asks peers what its agent says when it says so. */
final class AgentRun {
  static final Set<String> KEYS =
      Set.of(
          "socket", "asking", "listen", "cookie", "body", "wall-offset", "patience", "disk", "disk-bytes",
          "compete", "live", "occupancy", "cores");

  private AgentRun() {}

  /** Runs until it is stopped. */
  static void run(Options options, Parent parent) throws InterruptedException {
    AgentTerms terms = AgentTerms.of(options);
    Workload workload = Workload.competing(options);
    Server server;
    try (Load load = workload == null ? null : Load.build(workload, false, parent);
        Loops loops = Loops.start()) {
      server = Server.open(terms, Limits.USUAL, loops.serving());
      try (server) {
        serve(server, terms, loops, parent, load);
      }
    }
    // the event loops have ended: who was still connected is counted
    parent.tell(Kind.REFUSED, server.refused());
  }

  private static void serve(Server server, AgentTerms terms, Loops loops, Parent parent, Load load)
      throws InterruptedException {
    Asking asking = Asking.open(terms, loops.asking());
    try {
      Telling.hello(parent, server.port());
      watch(parent, load);
    } finally {
      asking.close();
    }
  }

  private static void watch(Parent parent, Load load) throws InterruptedException {
    Watch watch = Watch.ofCollector(parent, load);
    try {
      Waiting.untilStopped(parent);
    } finally {
      watch.close();
    }
  }
}
