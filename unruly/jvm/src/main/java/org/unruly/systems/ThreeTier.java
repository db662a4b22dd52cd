package org.unruly.systems;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.unruly.apps.Member;
import org.unruly.apps.MiddleTier;
import org.unruly.apps.Spans;
import org.unruly.jvm.Options;
import org.unruly.jvm.Problem;

/**
 * A three-tier application: clients call one of eight applications on one of four platforms, which
 * keeps everything in a database.
 *
 * <p>The middle tier may have two replicas. Clients keep connections to both. With {@code passive}
 * replication a client calls one of them, and the other one after a failure; with {@code active}
 * replication it calls both, and takes the reply that comes first.
 */
final class ThreeTier implements EchoSystem {
  private static final List<String> PLATFORMS = List.of("http", "ejb", "jacorb", "rmi");
  private static final Set<String> OWN =
      Set.of(
          "platform", "application", "url", "user", "password", "connections", "spans", "replicas",
          "replication", "attempt-ms");

  /** The address where nobody receives spans. */
  private static final String NONE = "none";

  private static final int CONNECTIONS_MAX = 1_000;
  private static final int ATTEMPT_MS_MAX = 3_600_000;

  @Override
  public Set<String> keys() {
    Set<String> keys = new TreeSet<>(OWN);
    PLATFORMS.forEach(name -> keys.addAll(platform(name).keys()));
    return keys;
  }

  /**
   * Prints what contradicts itself in the tables of an application; returns true if nothing does.
   */
  static boolean isConsistent(Options options, LineWriter lines) throws Exception {
    MiddleTier reader = middleTier(options, new Spans("check"));
    String found = reader.contradiction();
    reader.close();
    lines.text(found.isEmpty() ? "nothing contradicts itself" : found);
    return found.isEmpty();
  }

  private static MiddleTier middleTier(Options options, Spans spans) {
    return new MiddleTier(
        options.text("application"),
        options.text("url"),
        options.text("user"),
        options.text("password"),
        (int) options.number("connections", 1, CONNECTIONS_MAX),
        spans);
  }

  private static Platform platform(String name) {
    return switch (name) {
      case "http" -> new HttpEcho();
      case "ejb" -> new EjbEcho();
      case "jacorb" -> new JacorbEcho();
      case "rmi" -> new RmiEcho();
      default ->
          throw new Problem(
              "systems", "the platform is '" + name + "'", "http, ejb, jacorb or rmi", "rmi");
    };
  }

  @Override
  public void serve(Options options) throws Exception {
    Spans spans = spans("application", options);
    MiddleTier middleTier = middleTier(options, spans);
    middleTier.prepare();
    platform(options.text("platform")).serve(options, middleTier::handle);
  }

  /** Returns where spans go: nowhere unless the options have an address. */
  private static Spans spans(String service, Options options) {
    Spans spans = new Spans(service);
    String address = options.has("spans") ? options.text("spans") : NONE;
    if (!address.equals(NONE)) {
      spans.start(address);
    }
    return spans;
  }

  @Override
  public Client client(Options options, long timeoutNs) throws Exception {
    String name = options.text("platform");
    String replication = options.oneOf("replication", List.of("none", "passive", "active"));
    long attemptNs = 1_000_000 * options.number("attempt-ms", 1, ATTEMPT_MS_MAX);
    // with one replica there is nothing to go on with, and a second attempt would only add load
    long eachNs = replication.equals("none") ? timeoutNs : Math.min(attemptNs, timeoutNs);
    List<Client> replicas = new ArrayList<>();
    for (String place : options.text("replicas").split(",")) {
      Platform platform = platform(name);
      replicas.add(platform.client(place(place, platform.keys()), eachNs));
    }
    String application = options.text("application");
    // an unknown name ends the program here, and not each call
    new Member(application);
    Replicas shared = new Replicas(replicas, timeoutNs, spans("client", options));
    boolean isActive = replication.equals("active");
    return () -> new MemberConnection(application, shared.calls(isActive));
  }

  /** Returns the options of a replica, {@code HOST:PORT:FILE}; the file is for CORBA. */
  private static Options place(String words, Set<String> keys) {
    String[] parts = words.split(":", 3);
    if (parts.length < 3) {
      throw new Problem(
          "systems", "a replica is '" + words + "'", "HOST:PORT:FILE", "see unruly/jvm/README.md");
    }
    List<String> pairs = new ArrayList<>(List.of("host=" + parts[0], "port=" + parts[1]));
    if (keys.contains("ior")) {
      pairs.add("ior=" + parts[2]);
    }
    return new Options(pairs, keys);
  }
}
