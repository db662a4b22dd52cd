// The program uses go-redis as any program would, and prints the replies.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// The words are: single or cluster, the addresses with commas between, a user, a password, and the
// certificate to trust; the last three may be empty.
func run(words []string) error {
	if len(words) != 5 {
		return fmt.Errorf("words: there are %d; wanted MODE ADDRESSES USER PASSWORD CERTIFICATE", len(words))
	}
	options := redis.UniversalOptions{
		Addrs:    strings.Split(words[1], ","),
		Username: words[2],
		Password: words[3],
	}
	if words[4] != "" {
		trusted := x509.NewCertPool()
		text, err := os.ReadFile(words[4])
		if err != nil {
			return err
		}
		trusted.AppendCertsFromPEM(text)
		options.TLSConfig = &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}
	}
	var client redis.UniversalClient = redis.NewClient(options.Simple())
	if words[0] == "cluster" {
		client = redis.NewClusterClient(options.Cluster())
	}
	defer client.Close()
	return use(context.Background(), client)
}

func use(ctx context.Context, client redis.UniversalClient) error {
	for number := 0; number < 100; number++ {
		key := fmt.Sprintf("go:%d", number)
		if err := client.Set(ctx, key, number, time.Hour).Err(); err != nil {
			return err
		}
		sum, err := client.IncrBy(ctx, key, 1000).Result()
		if err != nil {
			return err
		}
		if sum != int64(number)+1000 {
			return fmt.Errorf("%s: it is %d; wanted %d", key, sum, number+1000)
		}
	}
	pipe := client.Pipeline()
	for number := 0; number < 100; number++ {
		pipe.Get(ctx, fmt.Sprintf("go:%d", number))
	}
	answers, err := pipe.Exec(ctx)
	if err != nil {
		return err
	}
	if err := client.Get(ctx, "go:nothing").Err(); err != redis.Nil {
		return fmt.Errorf("go:nothing: %v; wanted nothing", err)
	}
	left, err := client.TTL(ctx, "go:1").Result()
	if err != nil {
		return err
	}
	done, err := transact(ctx, client)
	if err != nil {
		return err
	}
	fmt.Printf("answers %d, lives on %v, transactions %d\n", len(answers), left > 59*time.Minute, done)
	return nil
}

// Runs a transaction, and one that depends on a key that it watches. Returns the number of those
// that were done.
func transact(ctx context.Context, client redis.UniversalClient) (int, error) {
	key := "go:{transaction}"
	if _, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.HSet(ctx, key+":hash", "field", "value")
		pipe.Set(ctx, key, 1, time.Hour)
		return nil
	}); err != nil {
		return 0, err
	}
	add := func(tx *redis.Tx) error {
		value, err := tx.Get(ctx, key).Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, key, value+1, time.Hour)
			return nil
		})
		return err
	}
	if err := client.Watch(ctx, add, key); err != nil {
		return 1, err
	}
	return client.Get(ctx, key).Int()
}
