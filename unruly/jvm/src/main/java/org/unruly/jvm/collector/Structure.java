package org.unruly.jvm.collector;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.lang.management.ManagementFactory;
import java.math.BigInteger;
import java.util.SplittableRandom;

/**
 * A randomly linked structure of constant size, of which elements are dropped and added.
 *
 * <p>Each element has a place, and links to the elements at three other places, which its place gives: each link maps
 * places one to one, at random. So it is known from which places an element is linked to, and when it is dropped all
 * links to it are changed to the one that takes its place. Otherwise a dropped element would stay alive through older
 * elements that link to it, and those through still older ones, and the structure would grow without end.
 *
 * <p>Dropped elements are of any age, so that garbage is not all young; and the changed links make old objects point to
 * young ones, which a collector has to keep account of. For one thread.
 */
final class Structure {
  private static final int LINKS = 3;

  /** Payloads are of several sizes, in steps of the heap's alignment, so that freed room does not simply fit again. */
  private static final int PAYLOAD_BYTES_MIN = 64;

  private static final int PAYLOAD_STEPS = 37;
  private static final int ALIGNMENT_BYTES = 8;

  private final Node[] nodes;
  private final long[] multipliers = new long[LINKS];
  private final long[] inverses = new long[LINKS];
  private final long[] offsets = new long[LINKS];
  private final SplittableRandom random;

  /** Builds a structure of about this many bytes. */
  Structure(long liveBytes, long seed) {
    random = new SplittableRandom(seed);
    long count = Math.max(1, liveBytes / elementBytes());
    nodes = new Node[(int) Math.min(count, Integer.MAX_VALUE - 8)];
    for (int link = 0; link < LINKS; link++) {
      draw(link);
    }
    // every place filled, then linked, as if each element had come in its turn
    for (int place = 0; place < nodes.length; place++) {
      nodes[place] = new Node(payload());
    }
    for (int place = 0; place < nodes.length; place++) {
      link(nodes[place], place);
    }
  }

  /** Drops a random element, and adds a new one in its place. */
  void replaceOne() {
    int place = random.nextInt(nodes.length);
    Node node = new Node(payload());
    nodes[place] = node;
    link(node, place);
    nodes[source(0, place)].first = node;
    nodes[source(1, place)].second = node;
    nodes[source(2, place)].third = node;
  }

  /** Elements of the structure. */
  int size() {
    return nodes.length;
  }

  /** Bytes of an element on average, as HotSpot lays it out: the place, the element, its payload. */
  static long elementBytes() {
    int reference = compressed("UseCompressedOops") ? 4 : 8;
    int head = compressed("UseCompressedClassPointers") ? 12 : 16;
    long payload = PAYLOAD_BYTES_MIN + ALIGNMENT_BYTES * (PAYLOAD_STEPS - 1) / 2;
    return reference + aligned(head + (LINKS + 1L) * reference) + aligned(head + Integer.BYTES + payload);
  }

  /** How many of the links lead where they should: all of them, at any time. */
  int rightLinks() {
    int right = 0;
    for (int place = 0; place < nodes.length; place++) {
      right += nodes[place].first == nodes[target(0, place)] ? 1 : 0;
      right += nodes[place].second == nodes[target(1, place)] ? 1 : 0;
      right += nodes[place].third == nodes[target(2, place)] ? 1 : 0;
    }
    return right;
  }

  private void link(Node node, int place) {
    node.first = nodes[target(0, place)];
    node.second = nodes[target(1, place)];
    node.third = nodes[target(2, place)];
  }

  private byte[] payload() {
    return new byte[PAYLOAD_BYTES_MIN + ALIGNMENT_BYTES * random.nextInt(PAYLOAD_STEPS)];
  }

  /** A multiplier that has no divisor in common with the number of places maps them one to one. */
  private void draw(int link) {
    BigInteger places = BigInteger.valueOf(nodes.length);
    BigInteger multiplier;
    do {
      multiplier = BigInteger.valueOf(1 + random.nextLong(nodes.length));
    } while (!multiplier.gcd(places).equals(BigInteger.ONE));
    multipliers[link] = multiplier.longValueExact();
    inverses[link] = multiplier.modInverse(places).longValueExact();
    offsets[link] = random.nextLong(nodes.length);
  }

  private int target(int link, int place) {
    return (int) ((place * multipliers[link] + offsets[link]) % nodes.length);
  }

  private int source(int link, int place) {
    return (int) ((place - offsets[link] + nodes.length) % nodes.length * inverses[link] % nodes.length);
  }

  private static long aligned(long bytes) {
    return (bytes + ALIGNMENT_BYTES - 1) / ALIGNMENT_BYTES * ALIGNMENT_BYTES;
  }

  private static boolean compressed(String option) {
    var bean = ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
    return Boolean.parseBoolean(bean.getVMOption(option).getValue());
  }

  private static final class Node {
    private final byte[] payload;
    private Node first;
    private Node second;
    private Node third;

    private Node(byte[] payload) {
      this.payload = payload;
      // so that it counts as used
      this.payload[0] = 1;
    }
  }
}
