package org.unruly.jvm.foreign;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

/** The golden bytes that both sides of a contract are tested against. */
public final class Golden {
  private static final Path FOLDER = Path.of(System.getProperty("basedir", ".")).resolve("../schema/golden");

  private Golden() {}

  /** The bytes of that name of {@code unruly/schema/foreign.md}. */
  public static byte[] bytes(String name) throws IOException {
    return bytes("foreign.txt", name);
  }

  /** The bytes of that name of {@code unruly/schema/wire.md}. */
  public static byte[] wire(String name) throws IOException {
    return bytes("wire.txt", name);
  }

  private static byte[] bytes(String file, String name) throws IOException {
    String hex = null;
    for (String line : Files.readAllLines(FOLDER.resolve(file))) {
      if (line.startsWith(name + " ")) {
        hex = line.substring(name.length() + 1);
      }
    }
    assertNotNull(hex, name);
    return HexFormat.of().parseHex(hex);
  }
}
