package kafka

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kmsg"
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
