package org.unruly.jvm;

import java.util.Arrays;
import java.util.Set;
import org.unruly.jvm.collector.Load;
import org.unruly.jvm.collector.Workload;
import org.unruly.jvm.foreign.ForeignRecord.Kind;
import org.unruly.jvm.foreign.Parent;
import org.unruly.jvm.protocol.AeronDriver;
import org.unruly.jvm.watch.ProcessMonitor;

/** A process that an agent starts beside itself: see {@code unruly/jvm/README.md}. */
public final class Main {
  /** Exit status of a run that did what it was asked. */
  private static final int DONE = 0;

  /** Exit status of a run that could not. */
  private static final int FAILED = 2;

  private Main() {}

  /** Runs a verb with its options; the process ends with it. */
  public static void main(String[] words) {
    // before any class of the network is there: streams are of IPv4, multicast among them
    System.setProperty("java.net.preferIPv4Stack", "true");
    // libraries greet on stdout, which is nobody's here
    System.setOut(System.err);
    Parent parent = null;
    int status = DONE;
    try {
      String verb = words.length > 0 ? words[0] : "";
      Options options = new Options(Arrays.asList(words).subList(Math.min(1, words.length), words.length), keys(verb));
      parent = Parent.connect(options.text("socket"), Shutdown::atOnce);
      run(verb, options, parent);
      parent.report(Kind.DONE);
    } catch (Exception | Error thrown) {
      status = FAILED;
      parent = parent == null ? parentDespite(words) : parent;
      Session.failure(parent, thrown);
    }
    if (parent != null) {
      parent.close();
    }
    Shutdown.now(status);
  }

  /** Connects to the agent to report wrong options, if the option of the socket is right; else returns null. */
  private static Parent parentDespite(String[] words) {
    for (String word : words) {
      if (word.startsWith("socket=")) {
        try {
          return Parent.connect(word.substring("socket=".length()), Shutdown::atOnce);
        } catch (Problem thrown) {
          // then only stderr gets the report
        }
      }
    }
    return null;
  }

  private static Set<String> keys(String verb) {
    return switch (verb) {
      case "stream" -> StreamRun.KEYS;
      case "collector" -> CollectorRun.KEYS;
      case "aeron-driver" -> AeronDriverRun.KEYS;
      case "agent" -> AgentRun.KEYS;
      default ->
          throw new Problem("jvm", "the verb is '" + verb + "'", "stream, collector, aeron-driver or agent", "see unruly/jvm/README.md");
    };
  }

  private static void run(String verb, Options options, Parent parent) throws Exception {
    switch (verb) {
      case "stream" -> StreamRun.run(options, parent);
      case "collector" -> CollectorRun.run(options, parent);
      case "aeron-driver" -> AeronDriverRun.run(options, parent);
      case "agent" -> AgentRun.run(options, parent);
      default -> throw new IllegalStateException(verb);
    }
  }

  /** Aeron's media driver in a process of its own, which streams of this host share. */
  static final class AeronDriverRun {
    static final Set<String> KEYS = Set.of("socket", "directory");

    private AeronDriverRun() {}

    /** Runs until it is stopped. */
    static void run(Options options, Parent parent) throws InterruptedException {
      AeronDriver driver = AeronDriver.launch(options.text("directory"));
      ProcessMonitor watch = new ProcessMonitor(parent, null, 0, null);
      Session.hello(parent, -1);
      watch.start();
      try {
        Session.awaitStop(parent);
      } finally {
        watch.close();
        driver.close();
      }
    }
  }

  /** A collector's workload alone in its process. */
  static final class CollectorRun {
    static final Set<String> KEYS = Set.of("socket", "live", "occupancy", "cores");

    private CollectorRun() {}

    /** Runs until it is stopped. */
    static void run(Options options, Parent parent) throws InterruptedException {
      try (Load load = Load.build(Workload.of(options), true, parent)) {
        ProcessMonitor watch = new ProcessMonitor(parent, null, 0, load);
        Session.hello(parent, -1);
        watch.start();
        try {
          Session.awaitStop(parent);
        } finally {
          watch.close();
        }
      }
    }
  }
}
