package main

import (
	"fmt"
	"math"
	"strconv"

	"github.com/anishathalye/porcupine"
)

// value is what a key holds.
type value struct {
	text    string
	present bool
}

// state is one that a key may be in, with those that it was in before on the same path, for keys of
// which a loss was told.
type state struct {
	now    value
	before *past
}

// past is a set of values, shared between the states that follow each other.
type past struct {
	value   value
	earlier *past
	// The sum over all members, so that sets are compared without being walked.
	sum uint64
}

func (p *past) contains(sought value) bool {
	for ; p != nil; p = p.earlier {
		if p.value == sought {
			return true
		}
	}
	return false
}

func (p *past) with(added value) *past {
	if p.contains(added) {
		return p
	}
	sum := hash(added)
	if p != nil {
		sum += p.sum
	}
	return &past{value: added, earlier: p, sum: sum}
}

// hash is FNV-1a of a value.
func hash(v value) uint64 {
	sum := uint64(14695981039346656037)
	if v.present {
		sum ^= 1
	}
	for i := 0; i < len(v.text); i++ {
		sum = (sum ^ uint64(v.text[i])) * 1099511628211
	}
	return sum | 1
}

// ask is what a call asked for.
type ask struct {
	Kind     string  `json:"ask"`
	Value    string  `json:"value"`
	Expected *string `json:"expected"`
	By       int64   `json:"by"`
}

// answer is what it was told.
type answer struct {
	Kind   string `json:"answer"`
	Value  string `json:"value"`
	Number int64  `json:"number"`
}

// certainty is how much is known of a call.
type certainty int

const (
	// answered: it happened, and said this.
	answered certainty = iota
	// open: it happened at most once, and nobody knows what it said.
	open
	// loss: no call, but a loss that was told. The key may go back to any value that it had.
	loss
)

// input is a call for the model.
type input struct {
	ask       ask
	certainty certainty
	// The history needs the values of the past, since a loss of this key was told.
	lossy bool
}

// execute is the sequential specification: the key-value machine, written a second time.
func execute(was value, asked ask) (value, answer) {
	switch asked.Kind {
	case "get":
		if !was.present {
			return was, answer{Kind: "not_found"}
		}
		return was, answer{Kind: "value", Value: was.text}
	case "set":
		return value{asked.Value, true}, answer{Kind: "stored"}
	case "delete":
		if was.present {
			return value{}, answer{Kind: "number", Number: 1}
		}
		return value{}, answer{Kind: "number", Number: 0}
	case "increment":
		return increment(was, asked.By)
	case "append":
		text := was.text + asked.Value
		return value{text, true}, answer{Kind: "number", Number: int64(len(text))}
	case "compare_and_set":
		holds := was.present == (asked.Expected != nil) && (!was.present || was.text == *asked.Expected)
		if !holds {
			return was, answer{Kind: "not_stored"}
		}
		return value{asked.Value, true}, answer{Kind: "stored"}
	}
	panic("a kind that the reader lets through: " + asked.Kind)
}

func increment(was value, by int64) (value, answer) {
	number := int64(0)
	if was.present {
		read, err := strconv.ParseInt(was.text, 10, 64)
		if err != nil {
			return was, answer{Kind: "not_a_number"}
		}
		number = read
	}
	if (by > 0 && number > math.MaxInt64-by) || (by < 0 && number < math.MinInt64-by) {
		return was, answer{Kind: "out_of_range"}
	}
	number += by
	return value{strconv.FormatInt(number, 10), true}, answer{Kind: "number", Number: number}
}

func step(was state, in input, out answer) []interface{} {
	if in.certainty == loss {
		after := []interface{}{was}
		for member := was.before; member != nil; member = member.earlier {
			if member.value != was.now {
				after = append(after, state{member.value, was.before})
			}
		}
		return after
	}
	now, said := execute(was.now, in.ask)
	next := state{now: now, before: was.before}
	if in.lossy {
		next.before = was.before.with(now)
	}
	if in.certainty == open {
		return []interface{}{was, next}
	}
	if said != out {
		return nil
	}
	return []interface{}{next}
}

func equal(a, b interface{}) bool {
	one, other := a.(state), b.(state)
	if one.now != other.now || (one.before == nil) != (other.before == nil) {
		return false
	}
	return one.before == nil || one.before.sum == other.before.sum
}

func digest(s state) uint64 {
	sum := hash(s.now)
	if s.before != nil {
		sum += s.before.sum
	}
	return sum
}

// keyModel is a key of a session, from when it has no value.
func keyModel(lossy bool) porcupine.Model {
	nondeterministic := porcupine.NondeterministicModel{
		Init: func() []interface{} {
			first := state{}
			if lossy {
				first.before = first.before.with(value{})
			}
			return []interface{}{first}
		},
		Step: func(was, in, out interface{}) []interface{} {
			return step(was.(state), in.(input), out.(answer))
		},
		Equal: equal,
		Hash: func(s interface{}) uint64 {
			return digest(s.(state))
		},
		DescribeOperation: func(in, out interface{}) string {
			return describe(in.(input), out.(answer))
		},
		DescribeState: func(s interface{}) string {
			return s.(state).now.String()
		},
	}
	return nondeterministic.ToModel()
}

func (v value) String() string {
	if !v.present {
		return "nothing"
	}
	return strconv.Quote(v.text)
}

func describe(in input, out answer) string {
	if in.certainty == loss {
		return "a loss that was told"
	}
	asked := in.ask.Kind
	switch asked {
	case "set", "append":
		asked += " " + strconv.Quote(in.ask.Value)
	case "increment":
		asked += fmt.Sprintf(" %+d", in.ask.By)
	case "compare_and_set":
		expected := "nothing"
		if in.ask.Expected != nil {
			expected = strconv.Quote(*in.ask.Expected)
		}
		asked += " " + expected + " to " + strconv.Quote(in.ask.Value)
	}
	if in.certainty == open {
		return asked + ": unknown"
	}
	switch out.Kind {
	case "value":
		return asked + ": " + strconv.Quote(out.Value)
	case "number":
		return fmt.Sprintf("%s: %d", asked, out.Number)
	}
	return asked + ": " + out.Kind
}
