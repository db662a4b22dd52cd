// The program linearizability says whether histories of a Flurry cluster are linearizable.
//
// Its arguments are directories with the `*.jsonl` of the processes of one cluster. Each key of each
// session is checked by itself, from the first owner to the last, with Porcupine; see
// flurry/docs/testing.md for the rules. The exit code is 0 when every history is accepted, 1
// when one is not or could not be decided in time, 2 when one cannot be read.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/anishathalye/porcupine"
)

const (
	exitAccepted = iota
	exitRejected
	exitError
)

func main() {
	timeout := flag.Duration("timeout", time.Minute, "how long to search for orders of calls, in all")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "linearizability: no directory; wanted one with histories; hint: linearizability DIRECTORY")
		os.Exit(exitError)
	}
	worst := exitAccepted
	for _, directory := range flag.Args() {
		if code := check(directory, *timeout, os.Stdout); code > worst {
			worst = code
		}
	}
	os.Exit(worst)
}

// check checks the histories of one cluster.
func check(directory string, timeout time.Duration, out io.Writer) int {
	owners, err := readAll(directory, out)
	if err != nil {
		fmt.Fprintf(out, "%v; hint: histories are written by flurry/crates/node/examples/history.rs\n", err)
		return exitError
	}
	histories, err := partition(owners)
	if err != nil {
		fmt.Fprintf(out, "violation: %v\n", err)
		return exitRejected
	}
	worst := exitAccepted
	until := time.Now().Add(timeout)
	for _, it := range histories {
		if code := it.check(directory, until, out); code > worst {
			worst = code
		}
	}
	verdict := map[int]string{exitAccepted: "linearizable", exitRejected: "NOT accepted"}[worst]
	fmt.Fprintf(out, "%s: %d owners, %d keys: %s\n", directory, len(owners), len(histories), verdict)
	return worst
}

func readAll(directory string, out io.Writer) ([]*owner, error) {
	paths, err := filepath.Glob(filepath.Join(directory, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s: it has no *.jsonl; wanted histories", directory)
	}
	var owners []*owner
	for _, path := range paths {
		it, err := readOwner(path)
		if err != nil {
			return nil, err
		}
		name := filepath.Base(path)
		if it == nil {
			fmt.Fprintf(out, "%s: never opened its session\n", name)
			continue
		}
		counts := map[string]int{}
		tails := 0
		for _, made := range it.calls {
			counts[made.outcome]++
			if made.tailUnknown {
				tails++
			}
		}
		fmt.Fprintf(out, "%s: session %s, epoch %d: %d done (%d with a tail unknown), %d unknown, %d lost, %d refused\n",
			name, it.session, it.epoch, counts["done"], tails, counts["unknown"], counts["lost"], counts["refused"])
		owners = append(owners, it)
	}
	return owners, nil
}

// check checks one key, and draws a violation into a page beside the histories.
func (h *keyHistory) check(directory string, until time.Time, out io.Writer) int {
	began := time.Now()
	// A timeout of zero would mean no limit.
	left := time.Until(until)
	if left < time.Millisecond {
		left = time.Millisecond
	}
	model := keyModel(h.lossy)
	result, info := porcupine.CheckOperationsVerbose(model, h.operations, left)
	told := fmt.Sprintf("%s/%s: %d operations", h.session, h.key, len(h.operations))
	switch result {
	case porcupine.Ok:
		fmt.Fprintf(out, "%s: linearizable (%d ms)\n", told, time.Since(began).Milliseconds())
		return exitAccepted
	case porcupine.Unknown:
		fmt.Fprintf(out, "%s: not decided within the time that was left (%s); wanted a verdict; hint: a longer -timeout, or fewer operations a key\n", told, left.Round(time.Millisecond))
		return exitRejected
	}
	page := filepath.Join(directory, fmt.Sprintf("violation-%s-%s.html", h.session, h.key))
	if err := porcupine.VisualizePath(model, info, page); err != nil {
		page = fmt.Sprintf("no page (%v)", err)
	}
	fmt.Fprintf(out, "%s: violation: no order of these calls explains their answers; see %s\n", told, page)
	return exitRejected
}
