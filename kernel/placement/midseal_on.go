//go:build trivium_midseal

package placement

const midSeal = true
