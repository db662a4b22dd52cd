package org.unruly.systems;

import jakarta.ejb.Remote;

/** The remote interface of the bean in WildFly. The client makes proxies of it, so it is public. */
@Remote
public interface WildflyEchoRemote {
  /** Returns its argument. */
  byte[] echo(byte[] bytes);
}
