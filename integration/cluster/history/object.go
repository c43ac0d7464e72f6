package history

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// Verb is what a client does to an object.
type Verb string

// Verbs of locks (an exclusive consumer of a queue) and of names (a queue that is
// there or not).
const (
	Acquire Verb = "acquire"
	Release Verb = "release"
	Take    Verb = "take"  // the holder's fencing token, which is shown to what the lock protects
	Prove   Verb = "prove" // an answer to the holder, who has taken a token, over the connection that holds
	Write   Verb = "write" // to what the lock protects, with a token, by whoever has one
	Drop    Verb = "drop"  // the holder's connection has gone

	Declare Verb = "declare"
	Delete  Verb = "delete"
	Look    Verb = "look"
)

// Answer is what came of it.
type Answer string

// Answers. No answer is NoAnswer: done or not.
const (
	Done     Answer = "done"
	Denied   Answer = "denied" // of Acquire: somebody has it; of Look: it is not there; of Take and Write: a later token was taken
	NoAnswer Answer = "no answer"
)

// lasting is how long after its begin something without an answer may still take
// effect: longer than any connection or leader that is gone for its client can live.
const lasting = 15 * time.Second

// Objects is a history of operations on named objects, which must be linearizable:
// each operation takes effect at one moment between its begin and its end. For locks
// that is fencing: whoever got an answer as the holder was the holder, so nobody
// hears so after somebody else has it; each token is above all that were taken before, the
// holder with the last one is never refused, and whoever has an older one always is.
// Its methods may be called concurrently.
type Objects struct {
	begin time.Time

	mu  sync.Mutex
	ops []porcupine.Operation
}

// NewObjects returns an empty history.
func NewObjects() *Objects { return &Objects{begin: time.Now()} }

// action is the input of an operation.
type action struct {
	object, who string
	verb        Verb
	token       int64 // of Take, Prove and Write
}

// Begin notes that a client begins something; the function returned notes the
// answer, once. who is a client during one connection.
func (o *Objects) Begin(object, who string, v Verb) func(Answer) {
	return o.BeginWith(object, who, v, 0)
}

// BeginWith is Begin of something that is done with a token of a lock.
func (o *Objects) BeginWith(object, who string, v Verb, token int64) func(Answer) {
	call := time.Since(o.begin)
	return func(a Answer) { o.add(action{object, who, v, token}, a, call, time.Since(o.begin)) }
}

// Gone notes that a client's connection, which held or asked for an object, has
// ended at some time since it was last known to live.
func (o *Objects) Gone(object, who string, lived time.Time) {
	o.add(action{object: object, who: who, verb: Drop}, NoAnswer, lived.Sub(o.begin), time.Since(o.begin))
}

func (o *Objects) add(in action, out Answer, call, end time.Duration) {
	if out == NoAnswer {
		if in.verb == Take || in.verb == Prove || in.verb == Write || in.verb == Look {
			return // it has changed nothing, and says nothing
		}
		end += lasting
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ops = append(o.ops, porcupine.Operation{Input: in, Output: out, Call: int64(call), Return: int64(end)})
}

// Len returns the number of operations.
func (o *Objects) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.ops)
}

// Check reports the objects whose history no order of operations explains.
// Undecided says that the time was too short to know of some.
func (o *Objects) Check(timeout time.Duration) (wrong []string, undecided bool) {
	o.mu.Lock()
	ops := append([]porcupine.Operation(nil), o.ops...)
	o.mu.Unlock()
	byObject := map[string][]porcupine.Operation{}
	for _, op := range ops {
		name := op.Input.(action).object
		byObject[name] = append(byObject[name], op)
	}
	model := (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{object{}} },
		Step: func(state, input, output any) []any {
			return next(state.(object), input.(action), output.(Answer))
		},
	}).ToModel()
	for name, ops := range byObject {
		switch porcupine.CheckOperationsTimeout(model, ops, timeout/time.Duration(len(byObject))) {
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("%s: %d operations that no order explains; %s", name, len(ops), o.explain(model, ops)))
		case porcupine.Unknown:
			undecided = true
		}
	}
	return wrong, undecided
}

// object is the state of one.
type object struct {
	holder string // of a lock; there for a name that exists
	token  int64  // of a lock: the last one taken, which is above all others
}

const there = "there"

// next returns the states that an operation with this answer may lead to: none if
// it cannot have had this answer.
func next(was object, a action, answer Answer) []any {
	set := func(holder string) []any {
		to := object{holder, was.token}
		if answer == NoAnswer {
			return []any{was, to}
		}
		return []any{to}
	}
	only := func(possible bool) []any {
		if possible || answer == NoAnswer {
			return []any{was}
		}
		return nil
	}
	switch a.verb {
	case Acquire:
		if answer == Denied {
			return only(was.holder != "")
		}
		if was.holder != "" {
			return only(false)
		}
		return set(a.who)
	case Release:
		if was.holder != a.who {
			return only(false)
		}
		return set("")
	case Take, Prove, Write:
		return fenced(was, a, answer)
	case Drop:
		if was.holder == a.who {
			return []any{object{"", was.token}}
		}
		return []any{was}
	case Declare:
		return set(there)
	case Delete:
		return set("")
	default:
		return only((was.holder == there) == (answer == Done))
	}
}

// fenced is next for what is done with a token.
func fenced(was object, a action, answer Answer) []any {
	holds, possible := was.holder == a.who, false
	switch {
	case answer == Denied: // by what the lock protects, which a later holder has been at
		possible = a.token < was.token && !holds
	case a.verb == Take:
		if a.token > was.token {
			return []any{object{was.holder, a.token}}
		}
	case a.verb == Prove:
		possible = holds && a.token == was.token
	default:
		possible = a.token >= was.token
	}
	if possible {
		return []any{was}
	}
	return nil
}
