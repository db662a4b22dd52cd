package org.unruly.board;

import java.util.EnumMap;
import java.util.Map;
import javax.sql.DataSource;
import org.apache.tomcat.jdbc.pool.PoolProperties;

/** The pools of connections to the database. */
final class Pools {
  private static final int WAIT_MS = 5_000;

  private Pools() {}

  /**
   * Returns the pool of each interaction.
   *
   * @param isGlobal all have one pool of {@code size} connections; otherwise each one that needs the database has one of
   *     its own
   */
  static Map<Interaction, DataSource> of(String url, String user, String password, boolean isGlobal, int size) {
    Map<Interaction, DataSource> pools = new EnumMap<>(Interaction.class);
    DataSource shared = isGlobal ? pool(url, user, password, size) : null;
    for (Interaction interaction : Interaction.values()) {
      if (interaction.kind() != Interaction.Kind.STATIC) {
        pools.put(interaction, isGlobal ? shared : pool(url, user, password, size));
      }
    }
    return pools;
  }

  private static DataSource pool(String url, String user, String password, int size) {
    PoolProperties settings = new PoolProperties();
    settings.setUrl(url);
    settings.setUsername(user);
    settings.setPassword(password);
    settings.setMaxActive(size);
    settings.setMaxIdle(size);
    settings.setMinIdle(size);
    // a pool that is not used has no connections
    settings.setInitialSize(0);
    settings.setMinIdle(0);
    settings.setMaxWait(WAIT_MS);
    settings.setJmxEnabled(false);
    return new org.apache.tomcat.jdbc.pool.DataSource(settings);
  }
}
