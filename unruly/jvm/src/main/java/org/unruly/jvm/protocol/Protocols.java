package org.unruly.jvm.protocol;

import java.io.IOException;
import java.util.List;
import org.unruly.jvm.Problem;
import org.unruly.jvm.stream.Inlet;
import org.unruly.jvm.stream.Outlet;
import org.unruly.jvm.stream.Terms;

/** The protocols by name. */
public final class Protocols {
  /** All names. */
  public static final List<String> NAMES =
      List.of("jvm-tcp", "jvm-nio", "jvm-udp", "jgroups-udp", "jgroups-tcp", "aeron");

  private Protocols() {}

  /** Opens the writer's end. */
  public static Outlet outlet(String protocol, Terms terms) {
    try {
      return switch (protocol) {
        case "jvm-tcp" -> new TcpOutlet(terms);
        case "jvm-nio" -> new NioOutlet(terms);
        case "jvm-udp" -> new UdpOutlet(terms);
        case "jgroups-udp", "jgroups-tcp" -> new JGroupsOutlet(protocol, terms);
        case "aeron" -> new AeronOutlet(terms);
        default -> throw unknown(protocol);
      };
    } catch (IOException thrown) {
      throw notOpened(protocol, terms, thrown);
    } catch (LinkageError thrown) {
      throw notLinked(protocol, thrown);
    }
  }

  /** Opens the reader's end. */
  public static Inlet inlet(String protocol, Terms terms) {
    try {
      return switch (protocol) {
        case "jvm-tcp" -> new TcpInlet(terms);
        case "jvm-nio" -> new NioInlet(terms);
        case "jvm-udp" -> new UdpInlet(terms);
        case "jgroups-udp", "jgroups-tcp" -> new JGroupsInlet(protocol, terms);
        case "aeron" -> new AeronInlet(terms);
        default -> throw unknown(protocol);
      };
    } catch (IOException thrown) {
      throw notOpened(protocol, terms, thrown);
    } catch (LinkageError thrown) {
      throw notLinked(protocol, thrown);
    }
  }

  private static Problem unknown(String protocol) {
    return new Problem("options", "protocol is " + protocol, "one of " + String.join(", ", NAMES), "protocol=jvm-tcp");
  }

  private static Problem notLinked(String protocol, LinkageError thrown) {
    Throwable cause = thrown.getCause() == null ? thrown : thrown.getCause();
    String hint = "the class path needs jvm/target/lib/*, and Java --add-opens java.base/sun.nio.ch=ALL-UNNAMED";
    return new Problem(protocol, "its library does not load: " + cause, "its jar, and the JDK open to it", hint, thrown);
  }

  private static Problem notOpened(String protocol, Terms terms, IOException thrown) {
    String wrong = terms.listenText() + " cannot be opened: " + thrown.getMessage();
    return new Problem(protocol, wrong, "a free port of an address of this host", "listen=IP:0", thrown);
  }
}
