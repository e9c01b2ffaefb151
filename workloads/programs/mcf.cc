// Minimum-cost flow by LEMON's network simplex.
//
// Stands for SPEC's mcf. Argument: a network in the DIMACS "min" format. Prints the cost and every
// arc that carries flow, so that a wrong flow of the right cost is seen as well.
#include <cstdio>
#include <fstream>
#include <lemon/dimacs.h>
#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

int main(int argc, char **argv)
{
    typedef lemon::SmartDigraph Graph;
    typedef lemon::NetworkSimplex<Graph, long long> Simplex;

    std::ifstream file(argc == 2 ? argv[1] : "");
    if (!file) {
        std::fprintf(stderr, "usage: %s NETWORK\n", argv[0]);
        return 64;
    }
    Graph graph;
    Graph::ArcMap<long long> low(graph), cap(graph), cost(graph);
    Graph::NodeMap<long long> supply(graph);
    lemon::readDimacsMin(file, graph, low, cap, cost, supply);

    Simplex simplex(graph);
    simplex.lowerMap(low).upperMap(cap).costMap(cost).supplyMap(supply);
    if (simplex.run() != Simplex::OPTIMAL) {
        std::puts("no optimal flow");
        return 1;
    }
    std::printf("cost %lld\n", simplex.totalCost<long long>());
    for (Graph::ArcIt arc(graph); arc != lemon::INVALID; ++arc)
        if (simplex.flow(arc) != 0)
            std::printf("%d %d %lld\n", graph.id(graph.source(arc)) + 1,
                        graph.id(graph.target(arc)) + 1, simplex.flow(arc));
    return 0;
}
