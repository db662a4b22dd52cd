package org.unruly.apps;

import java.sql.Connection;
import java.sql.SQLException;
import java.util.List;
import java.util.Optional;

/** Auctions items in categories. Each category always has the same number of open auctions. */
final class Ejbay implements Application {
  static final int CATEGORIES = 10;
  static final int OPEN_OF_A_CATEGORY = 20;

  /** An auction closes with this many accepted bids. */
  private static final int BIDS_MOST = 20;

  private static final int START_MOST = 100;
  private static final List<String> ITEMS =
      List.of("an oak table", "a brass lamp", "a red bicycle", "a fine violin", "a wool coat");
  static final Members MEMBERS =
      new Members(
          "bidders",
          "",
          "bids",
          "deed varchar(10), auction bigint, amount bigint, outcome varchar(12)");

  @Override
  public String name() {
    return "ejbay";
  }

  @Override
  public List<String> tables() {
    return MEMBERS.tables(
        // the house has no member; nor has the leader before the first bid
        "create table if not exists auctions(id bigint auto_increment primary key,"
            + " category int not null, item varchar(100) not null, seller bigint, leader bigint,"
            + " start_price bigint not null, price bigint not null, bids int not null,"
            + " is_open int not null)",
        "create index if not exists auctions_category on auctions(category, is_open, id)",
        "create index if not exists auctions_leader on auctions(leader, is_open, id)",
        "create index if not exists bids_auction on bids(auction, id)");
  }

  @Override
  public void fill(Connection database) throws SQLException {
    if (Sql.number(database, "select count(*) from auctions") > 0) {
      return;
    }
    for (int place = 0; place < CATEGORIES * OPEN_OF_A_CATEGORY; place++) {
      open(database, place % CATEGORIES, place, null, 1 + place % START_MOST);
    }
  }

  private static long open(
      Connection database, long category, long item, Long seller, long startPrice)
      throws SQLException {
    return Sql.add(
        database,
        "insert into auctions(category, item, seller, start_price, price, bids, is_open)"
            + " values(?, ?, ?, ?, ?, 0, 1)",
        category,
        ITEMS.get(Arguments.within(item, ITEMS.size())),
        seller,
        startPrice,
        startPrice);
  }

  @Override
  public void join(Connection database, long member) throws SQLException {
    MEMBERS.join(database, member);
  }

  @Override
  public List<Operation> operations() {
    Operation.Choice auction = Arguments.below(CATEGORIES, OPEN_OF_A_CATEGORY);
    return List.of(
        new Operation("browse", 30, false, Arguments.below(CATEGORIES), Ejbay::browse),
        new Operation("view", 25, false, auction, Ejbay::view),
        new Operation("history", 10, false, auction, Ejbay::history),
        new Operation("won", 8, false, Arguments.below(), Ejbay::won),
        new Operation(
            "bid", 22, true, Arguments.below(CATEGORIES, OPEN_OF_A_CATEGORY, 20), Ejbay::bid),
        new Operation(
            "post", 5, true, Arguments.below(CATEGORIES, ITEMS.size(), START_MOST), Ejbay::post));
  }

  private static String browse(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select item, price from auctions where category = ? and is_open = 1"
            + " order by id desc limit 8",
        Arguments.within(arguments[0], CATEGORIES));
  }

  /** Returns the id of an open auction that the arguments choose. */
  private static long auction(Connection database, long[] arguments) throws SQLException {
    return Sql.number(
        database,
        "select id from auctions where category = ? and is_open = 1 order by id limit 1 offset ?",
        Arguments.within(arguments[0], CATEGORIES),
        Arguments.within(arguments[1], OPEN_OF_A_CATEGORY));
  }

  private static String view(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return "auction, item, price, bids: "
        + Sql.text(
            database,
            "select id, item, price, bids from auctions where id = ?",
            auction(database, arguments));
  }

  private static String history(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select member, amount, outcome from bids where auction = ? order by id desc limit 5",
        auction(database, arguments));
  }

  private static String won(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    return Sql.text(
        database,
        "select item, price from auctions where leader = ? and is_open = 0"
            + " order by id desc limit 5",
        member);
  }

  /** Bids from 4 less to 15 more than the price of an auction. */
  private static String bid(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    long auction = auction(database, arguments);
    Optional<long[]> row =
        Sql.row(
            database,
            "select price, bids, category, case when seller = ? then 1 else 0 end from auctions"
                + " where id = ? and is_open = 1 for update",
            member,
            auction);
    long raise = Arguments.within(arguments[2], 20) - 4L;
    long amount = row.map(found -> found[0]).orElse(0L) + raise;
    String outcome = "accepted";
    if (row.isEmpty()) {
      outcome = "closed";
    } else if (row.get()[3] == 1) {
      outcome = "own item";
    } else if (raise <= 0) {
      outcome = "too low";
    }
    if (outcome.equals("accepted")) {
      boolean isLast = row.get()[1] + 1 >= BIDS_MOST;
      Sql.change(
          database,
          "update auctions set price = ?, leader = ?, bids = bids + 1, is_open = ? where id = ?",
          amount,
          member,
          isLast ? 0 : 1,
          auction);
      if (isLast) {
        open(database, row.get()[2], auction, null, 1 + auction % START_MOST);
      }
    }
    MEMBERS.record(database, member, number, "bid", auction, amount, outcome);
    return outcome + ": " + amount + " for auction " + auction;
  }

  /** Posts an item in the place of the oldest open auction of its category, which closes. */
  private static String post(Connection database, long member, long number, long[] arguments)
      throws SQLException {
    int category = Arguments.within(arguments[0], CATEGORIES);
    long oldest = auction(database, new long[] {category, 0});
    long startPrice = 1 + Arguments.within(arguments[2], START_MOST);
    // another member may have closed it meanwhile, and with it opened the next one
    String close = "update auctions set is_open = 0 where id = ? and is_open = 1";
    boolean isClosed = Sql.change(database, close, oldest) == 1;
    long auction =
        isClosed ? open(database, category, arguments[1], member, startPrice) : oldest;
    String outcome = isClosed ? "posted" : "closed";
    MEMBERS.record(database, member, number, "post", auction, startPrice, outcome);
    return outcome + " auction " + auction + " in the place of " + oldest;
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
            "auctions: %s has the price %s after %s bids, but the highest of %s bids is %s",
            "select a.id, a.price, a.bids, count(b.id), max(b.amount) from auctions a"
                + " left join bids b on b.auction = a.id and b.outcome = 'accepted'"
                + " group by a.id, a.price, a.bids, a.start_price having a.bids <> count(b.id)"
                + " or a.price <> coalesce(max(b.amount), a.start_price)"),
        new Check(
            "auctions: %s is led by member %s, who did not bid its price",
            "select a.id, a.leader from auctions a left join bids b on b.auction = a.id"
                + " and b.outcome = 'accepted' and b.amount = a.price and b.member = a.leader"
                + " where a.bids > 0 and b.id is null"),
        new Check(
            "auctions: category %s has %s open, of " + OPEN_OF_A_CATEGORY,
            "select category, sum(is_open) from auctions group by category"
                + " having sum(is_open) <> "
                + OPEN_OF_A_CATEGORY));
  }
}
