package org.unruly.jvm;

import java.util.Set;
import org.unruly.jvm.agent.AgentConfig;
import org.unruly.jvm.agent.AgentSocket;
import org.unruly.jvm.agent.EventLoops;
import org.unruly.jvm.agent.Server.Limits;
import org.unruly.jvm.agent.Server;
import org.unruly.jvm.collector.Load;
import org.unruly.jvm.collector.Workload;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.watch.ProcessMonitor;

/** A member of the group RPC: answers requests, and asks peers what its agent says when it says so. */
final class AgentRun {
  static final Set<String> KEYS =
      Set.of(
          "socket", "asking", "listen", "cookie", "body", "wall-offset", "timeout", "disk", "disk-bytes",
          "compete", "live", "occupancy", "cores");

  private AgentRun() {}

  /** Runs until it is stopped. */
  static void run(Options options, Parent parent) throws InterruptedException {
    AgentConfig config = AgentConfig.of(options);
    Workload workload = Workload.competing(options);
    Server server;
    try (Load load = workload == null ? null : Load.build(workload, false, parent);
        EventLoops loops = EventLoops.start()) {
      server = Server.open(config, Limits.USUAL, loops.serving());
      try (server) {
        serve(server, config, loops, parent, load);
      }
    }
    // the event loops have ended: who was still connected is counted
    parent.report(Kind.REFUSED, server.refused());
  }

  private static void serve(Server server, AgentConfig config, EventLoops loops, Parent parent, Load load)
      throws InterruptedException {
    AgentSocket asking = AgentSocket.open(config, loops.asking());
    try {
      ProcessMonitor watch = ProcessMonitor.ofCollector(parent, load);
      Session.hello(parent, server.port());
      watch(parent, watch);
    } finally {
      asking.close();
    }
  }

  private static void watch(Parent parent, ProcessMonitor watch) throws InterruptedException {
    watch.start();
    try {
      Session.awaitStop(parent);
    } finally {
      watch.close();
    }
  }
}
