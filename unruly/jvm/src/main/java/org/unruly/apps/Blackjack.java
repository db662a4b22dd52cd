package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/**
 * Deals Blackjack. Members bet chips against the house, which gives new chips to a player who has
 * too few.
 */
final class Blackjack implements Application {
  private static final long BANK = 1_000_000_000_000L;
  private static final long GRANT = 100;
  private static final int BET_MOST = 20;
  private static final int RANKS = 13;
  private static final int GOAL = 21;
  private static final int DEALER_STANDS = 17;

  static final Members MEMBERS =
      new Members(
          "players",
          "chips bigint not null default 0, stake bigint not null default 0,"
              + " hand int not null default 0, aces int not null default 0,"
              + " dealer int not null default 0, wins bigint not null default 0,"
              + " losses bigint not null default 0",
          "plays",
          "deed varchar(10), gain bigint, outcome varchar(12)");

  @Override
  public String name() {
    return "blackjack";
  }

  @Override
  public List<String> tables() {
    return MEMBERS.tables(
        "create table if not exists house(id int primary key, chips bigint not null)",
        "create index if not exists players_chips on players(chips)");
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (Sql.number(database, "select count(*) from house") == 0) {
      Sql.change(database, "insert into house values(1, ?)", BANK);
    }
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    if (MEMBERS.join(database, member)) {
      Sql.change(database, "update players set chips = ? where member = ?", GRANT, member);
      pay(database, GRANT);
    }
  }

  /** Takes chips from the house. All players change its row, so it is locked last. */
  private static void pay(Connection database, long chips) throws SQLException {
    if (chips != 0) {
      Sql.change(database, "update house set chips = chips - ? where id = 1", chips);
    }
  }

  @Override
  public List<Operation> operations() {
    return List.of(
        new Operation("table", 30, false, Arguments.below(), Blackjack::table),
        new Operation("profile", 15, false, Arguments.below(), Blackjack::profile),
        new Operation("history", 10, false, Arguments.below(), Blackjack::history),
        new Operation("leaders", 5, false, Arguments.below(), Blackjack::leaders),
        new Operation(
            "bet", 16, true, Arguments.below(BET_MOST, RANKS, RANKS, RANKS), Blackjack::bet),
        new Operation("hit", 11, true, Arguments.below(RANKS), Blackjack::hit),
        new Operation(
            "stand",
            13,
            true,
            Arguments.below(RANKS, RANKS, RANKS, RANKS, RANKS, RANKS, RANKS),
            Blackjack::stand));
  }

  private static String table(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "stake, hand, aces, dealer: "
        + Sql.text(
            database, "select stake, hand, aces, dealer from players where member = ?", member);
  }

  private static String profile(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "chips, wins, losses: "
        + Sql.text(database, "select chips, wins, losses from players where member = ?", member);
  }

  private static String history(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select outcome, gain from plays where member = ? order by id desc limit 5",
        member);
  }

  private static String leaders(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(database, "select member, chips from players order by chips desc limit 5");
  }

  /** Returns the points of the card of an argument: an ace is 1 and a picture is 10. */
  private static int card(long argument) {
    return Math.min(10, 1 + Arguments.within(argument, RANKS));
  }

  /** Returns the points of a hand, where one ace is 11 if that is no more than 21. */
  private static long points(long hand, long aces) {
    return aces > 0 && hand + 10 <= GOAL ? hand + 10 : hand;
  }

  private static String bet(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long[] player = MEMBERS.lock(database, member, "chips, stake");
    if (player[1] > 0) {
      return record(database, member, number, "bet", 0, "in play");
    }
    long stake = 1 + Arguments.within(arguments[0], BET_MOST);
    long grant = player[0] < stake ? GRANT : 0;
    int first = card(arguments[1]);
    int second = card(arguments[2]);
    Sql.change(
        database,
        "update players set chips = chips + ?, stake = ?, hand = ?, aces = ?, dealer = ?"
            + " where member = ?",
        grant - stake,
        stake,
        first + second,
        first == 1 || second == 1 ? 1 : 0,
        card(arguments[3]),
        member);
    return record(database, member, number, "bet", grant, grant > 0 ? "granted" : "dealt");
  }

  private static String hit(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long[] player = MEMBERS.lock(database, member, "stake, hand, aces");
    if (player[0] == 0) {
      return record(database, member, number, "hit", 0, "no hand");
    }
    int card = card(arguments[0]);
    long hand = player[1] + card;
    if (hand > GOAL) {
      settle(database, member, player[0], -1);
      return record(database, member, number, "hit", -player[0], "bust");
    }
    long aces = card == 1 ? 1 : player[2];
    Sql.change(
        database, "update players set hand = ?, aces = ? where member = ?", hand, aces, member);
    return record(database, member, number, "hit", 0, "has " + points(hand, aces));
  }

  /** Lets the dealer draw, and compares the hands. */
  private static String stand(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long[] player = MEMBERS.lock(database, member, "stake, hand, aces, dealer");
    if (player[0] == 0) {
      return record(database, member, number, "stand", 0, "no hand");
    }
    long dealer = player[3];
    long aces = dealer == 1 ? 1 : 0;
    for (int next = 0; next < arguments.length && points(dealer, aces) < DEALER_STANDS; next++) {
      int card = card(arguments[next]);
      dealer += card;
      aces = card == 1 ? 1 : aces;
    }
    long against = points(dealer, aces);
    int sign = against > GOAL ? 1 : Long.compare(points(player[1], player[2]), against);
    settle(database, member, player[0], sign);
    String outcome = sign > 0 ? "won" : sign < 0 ? "lost" : "even";
    return record(database, member, number, "stand", sign * player[0], outcome);
  }

  /** Ends a hand: the player gets the stake twice, once, or not at all. */
  private static void settle(Connection database, long member, long stake, int sign)
      throws SQLException {
    Sql.change(
        database,
        "update players set chips = chips + ?, stake = 0, wins = wins + ?, losses = losses + ?"
            + " where member = ?",
        stake * (1 + sign),
        Math.max(0, sign),
        Math.max(0, -sign),
        member);
  }

  private static String record(
      Connection database, long member, long number, String deed, long gain, String outcome)
      throws SQLException {
    MEMBERS.record(database, member, number, deed, gain, outcome);
    pay(database, gain);
    return outcome + " " + gain;
  }

  @Override
  public Tally tally(Connection database, long member) throws SQLException {
    return MEMBERS.tally(database, member);
  }

  @Override
  public Optional<String> contradiction(Connection database) throws SQLException {
    return MEMBERS.contradiction(
        database,
        new Check(
            "house and players have %s chips, of " + BANK,
            "select total from (select h.chips + coalesce((select sum(chips + stake) from players),"
                + " 0) as total from house h) t where total <> "
                + BANK),
        new Check(
            "players: member %s has %s chips, but the plays make %s",
            "select m.member, m.chips + m.stake, " + GRANT + " + coalesce(sum(p.gain), 0)"
                + " from players m left join plays p on p.member = m.member"
                + " group by m.member, m.chips, m.stake"
                + " having m.chips + m.stake <> " + GRANT + " + coalesce(sum(p.gain), 0)"));
  }
}
