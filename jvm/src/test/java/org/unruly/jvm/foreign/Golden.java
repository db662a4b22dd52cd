package org.unruly.jvm.foreign;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;

/** The golden bytes that both sides of the contract are tested against. */
public final class Golden {
  private static final Path FILE =
      Path.of(System.getProperty("basedir", ".")).resolve("../schema/golden/foreign.txt");

  private Golden() {}

  /** The bytes of that name. */
  public static byte[] bytes(String name) throws IOException {
    String hex = null;
    for (String line : Files.readAllLines(FILE)) {
      if (line.startsWith(name + " ")) {
        hex = line.substring(name.length() + 1);
      }
    }
    assertNotNull(hex, name);
    return HexFormat.of().parseHex(hex);
  }
}
