package org.unruly.jvm;

import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/** The words {@code key=value} of a command line; each is read with the range it must lie in. */
public final class Options {
  private final Map<String, String> values = new TreeMap<>();

  /**
   * Reads words; one that no verb knows, or comes twice, is a problem.
   *
   * @param words the words after the verb
   * @param known the keys this verb has
   */
  public Options(List<String> words, Set<String> known) {
    for (String word : words) {
      int equals = word.indexOf('=');
      String key = equals < 0 ? word : word.substring(0, equals);
      if (equals < 0 || !known.contains(key)) {
        String keys = String.join(", ", new TreeSet<>(known));
        throw new Problem("options", "'" + word + "' is not known", "key=value of " + keys, "see unruly/jvm/README.md");
      }
      if (values.put(key, word.substring(equals + 1)) != null) {
        throw new Problem("options", key + " is given twice", "each key once", "leave one out");
      }
    }
  }

  /** Whether a key was given. */
  public boolean has(String key) {
    return values.containsKey(key);
  }

  /** The text of a key that must be there. */
  public String text(String key) {
    String value = values.get(key);
    if (value == null || value.isEmpty()) {
      throw new Problem("options", key + " is missing", key + "=VALUE", "see unruly/jvm/README.md");
    }
    return value;
  }

  /** One of a few words. */
  public String oneOf(String key, List<String> words) {
    String value = text(key);
    if (!words.contains(value)) {
      throw new Problem("options", key + " is " + value, "one of " + String.join(", ", words), key + "=" + words.get(0));
    }
    return value;
  }

  /** A whole number within its range, both ends included. */
  public long number(String key, long least, long most) {
    String value = text(key);
    try {
      long number = Long.parseLong(value);
      if (number >= least && number <= most) {
        return number;
      }
    } catch (NumberFormatException thrown) {
      // told below, as a number out of range is
    }
    throw new Problem("options", key + " is " + value, "a whole number from " + least + " to " + most, key + "=" + least);
  }

  /** A share above 0 and at most 1. */
  public double share(String key) {
    String value = text(key);
    try {
      double share = Double.parseDouble(value);
      if (share > 0 && share <= 1) {
        return share;
      }
    } catch (NumberFormatException thrown) {
      // told below, as a share out of range is
    }
    throw new Problem("options", key + " is " + value, "a share above 0 and at most 1", key + "=0.6");
  }

  /** An address {@code IPv4:PORT}; port 0 leaves the choice to the kernel. */
  public InetSocketAddress address(String key) {
    String value = text(key);
    int colon = value.lastIndexOf(':');
    // digits and dots only: a name would be looked up, which takes time and may leave the host
    if (colon > 0 && value.substring(0, colon).matches("\\d+(\\.\\d+){3}")) {
      try {
        int port = Integer.parseInt(value.substring(colon + 1));
        return new InetSocketAddress(InetAddress.getByName(value.substring(0, colon)), port);
      } catch (IllegalArgumentException | UnknownHostException thrown) {
        // told below
      }
    }
    throw new Problem("options", key + " is " + value, "IPv4:PORT", key + "=127.0.0.1:0");
  }
}
