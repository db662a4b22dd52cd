package org.unruly.systems;

import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.util.Arrays;
import java.util.List;
import java.util.logging.Level;
import java.util.logging.Logger;
import org.unruly.jvm.Options;
import org.unruly.jvm.Problem;
import org.unruly.jvm.Shutdown;

/**
 * The echo of a payload through a middleware system, or an application on it: {@code serve SYSTEM
 * key=value...} is its server, and {@code call SYSTEM key=value...} a client that speaks the lines
 * of a driver. {@code check three-tier} looks for contradictions in the tables of an application.
 */
public final class Main {
  private static final int DONE = 0;
  private static final int CONTRADICTION = 1;
  private static final int FAILED = 2;
  private static final String HINT = "see unruly/jvm/README.md";

  private Main() {}

  /** Runs the server until it is killed, or the client until its input ends. */
  public static void main(String[] words) {
    // before any class of the network is loaded
    System.setProperty("java.net.preferIPv4Stack", "true");
    // libraries print to stdout, which is for our lines only
    System.setOut(System.err);
    // they report each step of their start, which nobody asked for
    Logger.getLogger("").setLevel(Level.WARNING);
    LineWriter lines = new LineWriter(new FileOutputStream(FileDescriptor.out));
    String verb = words.length > 0 ? words[0] : "";
    int status = DONE;
    try {
      String name = words.length > 1 ? words[1] : "";
      EchoSystem system = system(name);
      List<String> pairs = Arrays.asList(words).subList(2, words.length);
      Options options = new Options(pairs, system.keys());
      run(verb, name, system, options, lines);
    } catch (Exception | Error thrown) {
      status = FAILED;
      report(verb, thrown, lines);
    }
    Shutdown.now(status);
  }

  private static void run(
      String verb, String name, EchoSystem system, Options options, LineWriter lines)
      throws Exception {
    switch (verb) {
      case "serve" -> {
        system.serve(options);
        lines.text(name + " is ready");
        Thread.currentThread().join();
      }
      case "call" -> {
        FileInputStream in = new FileInputStream(FileDescriptor.in);
        new CallProgram(name, system, options, in, lines).run();
      }
      case "check" -> {
        if (!ThreeTier.isConsistent(options, lines)) {
          Shutdown.now(CONTRADICTION);
        }
      }
      default -> {
        String wrong = "the verb is '" + verb + "'";
        throw new Problem("systems", wrong, "serve, call or check", HINT);
      }
    }
  }

  private static void report(String verb, Throwable thrown, LineWriter lines) {
    String message = thrown.getMessage() == null ? thrown.toString() : thrown.getMessage();
    System.err.println(message);
    if (verb.equals("call")) {
      lines.text("no " + message);
    }
  }

  /** Returns the system of a name; the libraries of the others need not be there. */
  private static EchoSystem system(String name) {
    return switch (name) {
      case "jvm-tcp" -> new TcpEcho();
      case "jvm-nio" -> new NioEcho();
      case "http" -> new HttpEcho();
      case "grpc-java" -> new GrpcEcho();
      case "rmi" -> new RmiEcho();
      case "jacorb" -> new JacorbEcho();
      case "ejb" -> new EjbEcho();
      case "wildfly" -> new WildflyEcho();
      case "jgroups" -> new JGroupsEcho();
      case "aeron" -> new AeronEcho();
      case "three-tier" -> new ThreeTier();
      default -> {
        String known =
            "jvm-tcp, jvm-nio, http, grpc-java, rmi, jacorb, ejb, wildfly, jgroups, aeron or"
                + " three-tier";
        throw new Problem("systems", "the system is '" + name + "'", known, HINT);
      }
    };
  }
}
