package org.unruly.systems;

import jakarta.ejb.Stateless;

/** The bean in WildFly, which refuses a bean that is a nested class. */
@Stateless(name = WildflyEcho.BEAN)
public class WildflyEchoBean implements WildflyEchoRemote {
  @Override
  public byte[] echo(byte[] bytes) {
    return bytes;
  }
}
