package main

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/listener"
)

// renewEvery is how often the certificate files are looked at.
const renewEvery = 2 * time.Second

// renewal replaces certificates while the node runs: when their files have
// changed, and when it is asked.
type renewal struct {
	certificates *listener.Certificates
	log          zerolog.Logger
}

// run looks at the files until ctx is done.
func (r renewal) run(ctx context.Context) {
	r.tellExpiry()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if changed, err := r.certificates.ReloadChanged(); changed {
				r.tell(err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// now reloads whether or not something has changed.
func (r renewal) now() { r.tell(r.certificates.Reload()) }

func (r renewal) tell(err error) {
	if err != nil {
		r.log.Error().Err(err).Msg("the TLS certificate stays as it is")
		return
	}
	r.log.Info().Time("until", r.certificates.Expiry()).Msg("TLS certificate replaced")
	r.tellExpiry()
}

func (r renewal) tellExpiry() {
	if until := r.certificates.Expiry(); time.Now().After(until) {
		r.log.Error().Time("until", until).Msg("the TLS certificate has expired")
	}
}
