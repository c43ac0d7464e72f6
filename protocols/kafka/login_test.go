package kafka

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/trivium-mq/trivium/kernel"
)

// A peer that has not logged in has loginTimeout in all: what it drips does not
// prolong that.
func TestLoginTimeLimit(t *testing.T) {
	for name, drip := range map[string][]byte{
		"silent": {}, "half a size field": {0, 0}, "half a frame": {0, 0, 0, 20, 0, 18},
		"a slow frame": append([]byte{0, 0, 1, 0, 0, 18, 0, 0}, make([]byte, 200)...),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := newServer(newFake(), Config{Log: zerolog.Nop()})
				if err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				begun, ended := time.Now(), make(chan time.Duration, 1)
				go func() {
					s.serve(far)
					ended <- time.Since(begun)
				}()
				for _, b := range drip {
					if _, err := near.Write([]byte{b}); err != nil {
						break
					}
					<-time.After(4 * time.Second)
				}
				if took := <-ended; took != loginTimeout {
					t.Errorf("closed after %v, want %v", took, loginTimeout)
				}
				_ = near.Close()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What scanners send leaves no line at the usual level, and a client that
// breaks the rules again and again leaves only some.
func TestGarbageIsNotLoggedLoudly(t *testing.T) {
	var log lines
	addr, s := start(t, newFake(), func(cfg *Config) { cfg.Log = zerolog.New(&log).Level(zerolog.InfoLevel) })
	for _, garbage := range []string{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "\xff\xff\xff\xff"} {
		p := dial(t, addr)
		p.write([]byte(garbage))
		p.wantClosed()
	}
	for range 2 * faultLines {
		p := dial(t, addr)
		ask[*kmsg.MetadataResponse](p, kmsg.NewPtrMetadataRequest())
		p.write([]byte{0xff, 0xff, 0xff, 0xff})
		p.wantClosed()
	}
	if err := s.Shutdown(t.Context()); err != nil { // everything that would be logged has been
		t.Error(err)
	}
	if n := log.n.Load(); n != faultLines {
		t.Errorf("%d lines, want %d", n, faultLines)
	}
}

// lines counts what is written to a log.
type lines struct{ n atomic.Int64 }

func (l *lines) Write(b []byte) (int, error) {
	l.n.Add(1)
	return len(b), nil
}

// judgeless answers every login with one error.
type judgeless struct {
	*fakeNode
	err error
}

func (n judgeless) Authenticate(context.Context, string, string, string, net.Addr) (kernel.Identity, error) {
	return kernel.Identity{}, n.err
}

// A login that nobody can judge is not refused, which clients take to be final: the
// connection ends.
func TestLoginThatNobodyJudges(t *testing.T) {
	for _, test := range []struct {
		err   error
		final bool
	}{
		{kernel.Errorf(kernel.CodeUnavailable, "", "", "no node serves now"), false},
		{kernel.Errorf(kernel.CodeUnknown, "", "", "the node that serves has gone"), false},
		{kernel.Errorf(kernel.CodePressure, "", "", "too much is under way"), false},
		{errors.New("the stream has ended"), false},
		{kernel.Errorf(kernel.CodeAccessRefused, "user", "guest", "wrong password"), true},
		{kernel.Errorf(kernel.CodeLimit, "", "", "too many logins"), true},
		{kernel.Errorf(kernel.CodeNotFound, "tenant", "t", "it does not exist"), true},
	} {
		t.Run(test.err.Error(), func(t *testing.T) {
			addr, _ := start(t, judgeless{newFake(), test.err}, nil)
			p := dial(t, addr)
			handshake := kmsg.NewPtrSASLHandshakeRequest()
			handshake.Version, handshake.Mechanism = 1, mechanismPlain
			ask[*kmsg.SASLHandshakeResponse](p, handshake)
			login := kmsg.NewPtrSASLAuthenticateRequest()
			login.Version, login.SASLAuthBytes = 2, []byte("\x00guest\x00guest")
			if test.final {
				if code := ask[*kmsg.SASLAuthenticateResponse](p, login).ErrorCode; code != kerr.SaslAuthenticationFailed.Code {
					t.Errorf("code %d", code)
				}
			} else {
				p.send(login)
			}
			p.wantClosed()
		})
	}
}

// hostless is a node that finds nobody who serves.
type hostless struct{ *fakeNode }

func (hostless) Await(ctx context.Context) error {
	<-ctx.Done()
	return kernel.Errorf(kernel.CodeUnavailable, "", "", "no node serves now")
}

// While nobody serves a login waits, as any request does, and then the connection ends
// without a word.
func TestLoginWaitsForAHost(t *testing.T) {
	handshake, login := kmsg.NewPtrSASLHandshakeRequest(), kmsg.NewPtrSASLAuthenticateRequest()
	handshake.Version, handshake.Mechanism, login.Version = 1, "SCRAM-SHA-256", 2
	for name, last := range map[string]kmsg.Request{"SASL": login, "no SASL": kmsg.NewPtrMetadataRequest()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := newServer(hostless{newFake()}, Config{Log: zerolog.Nop()})
				if err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				go s.serve(far)
				p := &peer{t: t, nc: near}
				if last == login {
					ask[*kmsg.SASLHandshakeResponse](p, handshake)
				}
				begun := time.Now()
				p.send(last)
				if n, err := near.Read(make([]byte, 1)); n > 0 || err == nil {
					t.Error("there was an answer")
				}
				if took := time.Since(begun); took != patience {
					t.Errorf("closed after %v, want %v", took, patience)
				}
				_ = near.Close()
				if err := s.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
