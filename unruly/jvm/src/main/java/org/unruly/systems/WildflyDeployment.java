package org.unruly.systems;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.jar.JarEntry;
import java.util.jar.JarOutputStream;

/**
 * Writes the jar that WildFly deploys: the bean and its interface.
 *
 * <p>WildFly would look for beans and servlets in all classes of our whole archive. A JRE has no
 * program that makes jars.
 */
public final class WildflyDeployment {
  private static final List<Class<?>> CLASSES =
      List.of(WildflyEchoBean.class, WildflyEchoRemote.class);

  private WildflyDeployment() {}

  /** Writes the jar to the file that is the only word. */
  public static void main(String[] words) throws IOException {
    write(Path.of(words[0]));
  }

  static void write(Path file) throws IOException {
    try (JarOutputStream jar = new JarOutputStream(Files.newOutputStream(file))) {
      for (Class<?> type : CLASSES) {
        String name = type.getName().replace('.', '/') + ".class";
        try (InputStream in = type.getResourceAsStream("/" + name)) {
          if (in == null) {
            throw new FileNotFoundException(name);
          }
          jar.putNextEntry(new JarEntry(name));
          in.transferTo(jar);
        }
      }
    }
  }
}
