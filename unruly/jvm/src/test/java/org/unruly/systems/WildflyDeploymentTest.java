package org.unruly.systems;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import jakarta.ejb.Remote;
import jakarta.ejb.Stateless;
import java.lang.annotation.Annotation;
import java.lang.reflect.Modifier;
import java.net.URL;
import java.net.URLClassLoader;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.jar.JarFile;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** The jar that WildFly deploys, without WildFly. */
class WildflyDeploymentTest {
  private static final String BEAN = "org.unruly.systems.WildflyEchoBean";
  private static final String REMOTE = "org.unruly.systems.WildflyEchoRemote";

  @TempDir private Path folder;
  private Path file;

  @BeforeEach
  void write() throws Exception {
    file = folder.resolve("echo.jar");
    WildflyDeployment.main(new String[] {file.toString()});
  }

  @Test
  void theJarHasTheBeanAndItsInterfaceOnly() throws Exception {
    try (JarFile jar = new JarFile(file.toFile())) {
      List<String> names = jar.stream().map(it -> it.getName()).toList();
      List<String> types = List.of(BEAN, REMOTE);
      assertEquals(types.stream().map(it -> it.replace('.', '/') + ".class").toList(), names);
    }
  }

  /** The server has the classes of this jar and those of Jakarta, and no other class of ours. */
  @Test
  void theBeanAnswersWithoutOtherClassesOfOurs() throws Exception {
    URL own = file.toUri().toURL();
    URL jakarta = Stateless.class.getProtectionDomain().getCodeSource().getLocation();
    ClassLoader platform = ClassLoader.getPlatformClassLoader();
    try (URLClassLoader loader = new URLClassLoader(new URL[] {own, jakarta}, platform)) {
      Class<?> bean = loader.loadClass(BEAN);
      Class<?> remote = loader.loadClass(REMOTE);
      // WildFly refuses a nested bean, and an interface that is not public
      assertNull(bean.getEnclosingClass());
      assertTrue(Modifier.isPublic(bean.getModifiers()));
      assertTrue(Modifier.isPublic(remote.getModifiers()));
      assertEquals(List.of(Stateless.class.getName()), annotations(bean));
      assertEquals(List.of(Remote.class.getName()), annotations(remote));
      Object echo = bean.getConstructor().newInstance();
      byte[] sent = {1, 2, 3};
      Object reply = remote.getMethod("echo", byte[].class).invoke(echo, sent);
      assertArrayEquals(sent, (byte[]) reply);
    }
  }

  private static List<String> annotations(Class<?> type) {
    return Arrays.stream(type.getAnnotations())
        .map(Annotation::annotationType)
        .map(Class::getName)
        .toList();
  }

  @Test
  void theClientLooksForTheNameOfTheBean() {
    assertEquals(WildflyEcho.BEAN, WildflyEchoBean.class.getAnnotation(Stateless.class).name());
  }
}
