// Package deploy has what runs CoreDNS with fastudp elsewhere, and tests of it.
package deploy
