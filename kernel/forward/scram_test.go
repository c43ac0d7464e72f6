package forward

import (
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/sasl"
	franz "github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// TestScramLogin: a login in several messages takes place at the node that serves, for a
// client of another one.
func TestScramLogin(t *testing.T) {
	b := open(t)
	password := "pass, =word"
	if err := b.PutUser(soon(t), broker.UserSpec{Name: "u", Password: &password}); err != nil {
		t.Fatal(err)
	}
	h := NewHost(serve(t, b), "1")
	for mechanism, of := range map[string]func(franz.Auth) sasl.Mechanism{
		"SCRAM-SHA-256": franz.Auth.AsSha256Mechanism, "SCRAM-SHA-512": franz.Auth.AsSha512Mechanism,
	} {
		for given, right := range map[string]bool{password: true, "other": false} {
			session, msg, err := of(franz.Auth{User: "u", Pass: given}).Authenticate(context.Background(), "")
			if err != nil {
				t.Fatal(err)
			}
			s, ok := h.BeginScram(mechanism, "/", loopback)
			if !ok {
				t.Fatal(mechanism)
			}
			challenge, done, err := s.Step(soon(t), msg)
			if err != nil || done {
				t.Fatal(done, err)
			}
			if _, msg, err = session.Challenge(challenge); err != nil {
				t.Fatal(err)
			}
			proof, done, err := s.Step(soon(t), msg)
			if !right {
				wantCode(t, err, kernel.CodeAccessRefused)
				continue
			}
			if err != nil || !done || s.Identity() != (kernel.Identity{User: "u", Tenant: "/"}) {
				t.Fatal(done, err, s.Identity())
			}
			if done, _, err := session.Challenge(proof); !done || err != nil {
				t.Errorf("the client does not believe the server: %v", err)
			}
			_, _, err = s.Step(soon(t), msg)
			wantCode(t, err, kernel.CodeInvalid)
		}
	}
	if _, ok := h.BeginScram("SCRAM-SHA-1", "/", loopback); ok {
		t.Error("SCRAM-SHA-1 is known")
	}
	s, _ := h.BeginScram("SCRAM-SHA-256", "/", loopback)
	_, _, err := s.Step(soon(t), []byte("nonsense"))
	wantCode(t, err, kernel.CodeInvalid)
}

// TestScramsAreBounded: logins that begin and do not go on are forgotten in time, and
// another node cannot end them.
func TestScramsAreBounded(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	first := []byte("n,,n=guest,r=abcdefgh")
	for range maxScrams {
		if _, err := n.server.scrams.begin(context.Background(), b, "2", "SCRAM-SHA-256", "/", first, loopback); err != nil {
			t.Fatal(err)
		}
	}
	_, err := n.server.scrams.begin(context.Background(), b, "2", "SCRAM-SHA-256", "/", first, loopback)
	wantCode(t, err, kernel.CodeLimit)
	one := ""
	for token, at := range n.server.scrams.list {
		one, at.at = token, at.at.Add(-2*scramTime)
		n.server.scrams.list[token] = at
	}
	_, err = n.server.scrams.end(context.Background(), "2", one, nil) // too late
	wantCode(t, err, kernel.CodeInvalid)
	if _, err = n.server.scrams.begin(context.Background(), b, "2", "SCRAM-SHA-256", "/", first, loopback); err != nil {
		t.Fatal(err)
	}
	answer, err := n.server.scrams.begin(context.Background(), b, "2", "SCRAM-SHA-256", "/", first, loopback)
	if err != nil || len(n.server.scrams.list) != 2 {
		t.Fatal(err, len(n.server.scrams.list))
	}
	_, err = n.server.scrams.end(context.Background(), "3", read(answer[1:]).String(), nil)
	wantCode(t, err, kernel.CodeInvalid)
	if len(n.server.scrams.list) != 2 {
		t.Error("another node has ended it")
	}
}
